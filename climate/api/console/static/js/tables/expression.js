// Property expressions as people write them: `gpus >= 4 and rack in (r1, r2)`. The API reads JSON lists.

const OPERATORS = { "=": "==", "==": "==", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">=" };
const TOKEN = /\s*(?:"((?:[^"\\]|\\.)*)"|(==|!=|<=|>=|[=<>(),])|([^\s=<>!(),"]+)|(\S))/y;

/** The text is not an expression; the message says what is wrong and where. */
export class ExpressionError extends Error {}

/**
 * Read an expression.
 * @param {string} text words such as `vcpus >= 64 and not rack = r1`, or the JSON of the API
 * @returns {Array|null} null if the text is empty
 */
export function parseExpression(text) {
  const clean = text.trim();
  if (!clean) return null;
  if (clean.startsWith("[")) return fromJson(clean);
  const reader = new Reader(clean);
  const expression = either(reader);
  if (reader.token) throw new ExpressionError(
    `"${reader.token.text}" is not expected here. Join conditions with "and" or "or".`);
  return expression;
}

/** The expression in words. `parseExpression` reads them again. */
export function expressionText(expression) {
  return expression && expression.length ? words(expression, 0) : "";
}

function fromJson(text) {
  try {
    return JSON.parse(text);
  } catch {
    throw new ExpressionError("The text begins with [ but is not JSON.");
  }
}

class Reader {
  constructor(text) {
    this.tokens = [...tokens(text)];
    this.at = 0;
  }

  get token() {
    return this.tokens[this.at];
  }

  is(...texts) {
    return Boolean(this.token) && !this.token.quoted && texts.includes(this.token.text.toLowerCase());
  }

  take(text) {
    if (!this.is(text)) return false;
    this.at += 1;
    return true;
  }

  next(what) {
    const token = this.token;
    if (!token || (!token.quoted && "()=<>,".includes(token.text[0]))) {
      throw new ExpressionError(`${what} is missing ${token ? `before "${token.text}"` : "at the end"}.`);
    }
    this.at += 1;
    return token;
  }
}

function* tokens(text) {
  TOKEN.lastIndex = 0;
  while (TOKEN.lastIndex < text.trimEnd().length) {
    const [, quoted, sign, word, other] = TOKEN.exec(text);
    if (other) throw new ExpressionError(
      `"${other}" is not expected. Put names and values with special signs into double quotes.`);
    if (quoted !== undefined) yield { text: quoted.replace(/\\(.)/g, "$1"), quoted: true };
    else yield { text: sign ?? word, quoted: false };
  }
}

function either(reader) {
  return joined(reader, "or", both);
}

function both(reader) {
  return joined(reader, "and", single);
}

function joined(reader, word, part) {
  const parts = [part(reader)];
  while (reader.take(word)) parts.push(part(reader));
  return parts.length > 1 ? [word, ...parts] : parts[0];
}

function single(reader) {
  if (reader.take("not")) return ["not", single(reader)];
  if (reader.take("(")) {
    const inner = either(reader);
    if (!reader.take(")")) throw new ExpressionError('A ")" is missing.');
    return inner;
  }
  const property = `$${reader.next("The name of a property").text}`;
  if (reader.take("in")) return ["in", property, ...list(reader)];
  const operator = reader.token && !reader.token.quoted && OPERATORS[reader.token.text];
  if (!operator) {
    throw new ExpressionError(
      `After ${property.slice(1)}, write one of = != < <= > >= in, and a value: ${property.slice(1)} >= 4.`);
  }
  reader.at += 1;
  return [operator, property, value(reader.next("The value"))];
}

function list(reader) {
  if (!reader.take("(")) return [value(reader.next("The value"))];
  const values = [];
  do values.push(value(reader.next("The value")));
  while (reader.take(","));
  if (!reader.take(")")) throw new ExpressionError('A ")" is missing.');
  return values;
}

function value({ text, quoted }) {
  return !quoted && /^-?\d+(\.\d+)?$/.test(text) ? Number(text) : text;
}

function words(expression, level) {
  const [operator, ...rest] = expression;
  if (operator === "and" || operator === "or") {
    if (rest.length === 1) return words(rest[0], level);
    const own = operator === "or" ? 1 : 2;
    const text = rest.map((part) => words(part, own)).join(` ${operator} `);
    return level > own ? `(${text})` : text;
  }
  if (operator === "not") return `not ${words(rest[0], 3)}`;
  const property = quotedName(String(rest[0]).replace(/^\$/, ""));
  if (operator === "in") return `${property} in (${rest.slice(1).flat().map(quotedValue).join(", ")})`;
  return `${property} ${operator === "==" ? "=" : operator} ${quotedValue(rest[1])}`;
}

const KEYWORDS = /^(and|or|not|in)$/i;

function quotedName(text) {
  return /^[^\s=<>!(),"]+$/.test(text) && !KEYWORDS.test(text) ? text : quote(text);
}

function quotedValue(item) {
  return typeof item === "string" ? quotedName(item) : String(item);
}

function quote(text) {
  return `"${text.replace(/[\\"]/g, "\\$&")}"`;
}
