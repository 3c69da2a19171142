// Conditions on properties as people write them, "gpus >= 4 and rack in r1, r2", and as the API reads them.

/** Text that is no condition; `at` is the position of the slip in the text. */
export class FilterError extends Error {
  constructor(message, at) {
    super(message);
    this.at = at;
  }
}

const TOKEN = /\s*(?:([()])|(,)|(>=|<=|==|!=|=|>|<)|"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s()<>=!,"']+))/y;
const WORDS = ["and", "or", "not", "in"];

/**
 * The expression of the API for `text`; null for an empty text. JSON is taken as it is.
 * @param {string} text
 * @returns {Array|null}
 * @throws {FilterError}
 */
export function parseFilter(text) {
  if (!text.trim()) return null;
  if (text.trim().startsWith("[")) return json(text);
  const tokens = read(text);
  const parser = { tokens, at: 0, length: text.length };
  const expression = either(parser);
  const rest = peek(parser);
  if (rest) throw new FilterError(`Write "and" or "or" before "${rest.text}".`, rest.at);
  return expression;
}

/** The text of an expression: what `parseFilter` reads. */
export function filterText(expression) {
  if (!expression || !expression.length) return "";
  const [op, ...parts] = expression;
  if (op === "and" || op === "or") return parts.map((part) => nested(part, op)).join(` ${op} `);
  if (op === "not") return `not ${nested(parts[0], op)}`;
  const name = quoted(String(parts[0]).replace(/^\$/, ""));
  if (op === "in") return `${name} in ${parts.slice(1).map(quoted).join(", ")}`;
  return `${name} ${op === "==" ? "=" : op} ${quoted(parts[1])}`;
}

function json(text) {
  try {
    return JSON.parse(text);
  } catch {
    throw new FilterError("This is not JSON.", 0);
  }
}

function read(text) {
  const tokens = [];
  TOKEN.lastIndex = 0;
  while (TOKEN.lastIndex < text.trimEnd().length) {
    const from = TOKEN.lastIndex;
    const match = TOKEN.exec(text);
    if (!match) throw new FilterError(`"${text.slice(from).trim()[0]}" is not expected here.`, from);
    const at = from + match[0].length - match[0].trimStart().length;
    const value = match[4] ?? match[5];
    const kind = match[1] || (match[2] && ",") || (match[3] && "op") || (value === undefined ? "word" : "text");
    const content = value === undefined ? match[0].trim() : value.replace(/\\(.)/g, "$1");
    tokens.push({ kind, text: content, at });
  }
  return tokens;
}

const peek = (parser) => parser.tokens[parser.at];
const isWord = (token, word) => Boolean(token) && token.kind === "word" && token.text.toLowerCase() === word;

function either(parser) {
  return joined(parser, "or", both);
}

function both(parser) {
  return joined(parser, "and", single);
}

function joined(parser, word, part) {
  const parts = [part(parser)];
  while (isWord(peek(parser), word)) {
    parser.at += 1;
    parts.push(part(parser));
  }
  return parts.length === 1 ? parts[0] : [word, ...parts];
}

function single(parser) {
  const token = peek(parser);
  if (isWord(token, "not")) {
    parser.at += 1;
    return ["not", single(parser)];
  }
  if (!token || token.kind !== "(") return comparison(parser);
  parser.at += 1;
  const inner = either(parser);
  if (peek(parser)?.kind !== ")") throw new FilterError('A ")" is missing.', token.at);
  parser.at += 1;
  return inner;
}

function comparison(parser) {
  const name = take(parser, "Write a property, a comparison and a value: gpus >= 4.");
  const op = peek(parser);
  if (isWord(op, "in")) return membership(parser, name.text);
  if (!op || op.kind !== "op") {
    throw new FilterError(`Write a comparison after "${name.text}": ${name.text} >= 4.`, op ? op.at : parser.length);
  }
  parser.at += 1;
  const value = take(parser, `Write a value after "${name.text} ${op.text}".`);
  return [op.text === "=" ? "==" : op.text, `$${name.text.replace(/^\$/, "")}`, typed(value)];
}

function membership(parser, name) {
  parser.at += 1;
  const values = [typed(take(parser, `Write values after "${name} in", with commas.`))];
  while (peek(parser)?.kind === ",") {
    parser.at += 1;
    values.push(typed(take(parser, "Write a value after the comma.")));
  }
  return ["in", `$${name.replace(/^\$/, "")}`, ...values];
}

function take(parser, message) {
  const token = peek(parser);
  const plain = token && (token.kind === "text" || (token.kind === "word" && !WORDS.includes(token.text.toLowerCase())));
  if (!plain) throw new FilterError(message, token ? token.at : parser.length);
  parser.at += 1;
  return token;
}

function typed({ kind, text }) {
  return kind === "word" && /^[+-]?\d+(\.\d+)?$/.test(text) ? Number(text) : text;
}

function nested(expression, outer) {
  const isLogic = ["and", "or"].includes(expression[0]);
  const text = filterText(expression);
  return isLogic && expression[0] !== outer ? `(${text})` : text;
}

function quoted(value) {
  const text = String(value);
  const plain = typeof value === "number" || (/^[^\s()<>=!,"'[]+$/.test(text) && !WORDS.includes(text.toLowerCase()));
  const isTextOfNumber = typeof value === "string" && /^[+-]?\d+(\.\d+)?$/.test(text);
  // The API compares 4 and "4" alike, so a number needs no quotes either.
  return plain || isTextOfNumber ? text : `"${text.replace(/["\\]/g, "\\$&")}"`;
}
