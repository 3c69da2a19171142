// Starts Swagger UI. Requests that it sends carry the console's session (the cookie, and for
// changes the secret against cross-site requests), or the token that the user typed in.
"use strict";

const ROOT = new URL("../", document.baseURI);
const READ_METHODS = new Set(["GET", "HEAD"]);

/** The session of the console; null without one, or if the console is disabled. */
async function readSession() {
  try {
    const response = await fetch(new URL("console/session", ROOT), { cache: "no-store" });
    return response.ok ? await response.json() : null;
  } catch {
    return null;
  }
}

/** Add the secret of the session. Another tab may change the session, so each change reads it. */
async function addCsrf(request) {
  const headers = request.headers ?? {};
  const hasToken = Object.keys(headers).some((name) => name.toLowerCase() === "x-auth-token");
  if (!hasToken && !READ_METHODS.has((request.method ?? "GET").toUpperCase())) {
    const csrf = (await readSession())?.csrf;
    if (csrf) request.headers = { ...headers, "X-Climate-Csrf": csrf };
  }
  return request;
}

function describe(session) {
  if (session?.signed_in) {
    const names = `${session.user.name} in project ${session.project.name}`;
    const unchecked = session.authentication === "none" ? " This service does not check who you are." : "";
    return `Requests are sent as ${names}.${unchecked}`;
  }
  if (session?.authentication === "none") {
    return "This service does not check who you are. Requests are sent as admin, unless you sign in to the"
      + " console, or authorize with a token (user:project:roles).";
  }
  return "You are not signed in. Sign in to the console, or authorize with a token.";
}

async function showIdentity() {
  document.getElementById("identity").textContent = describe(await readSession());
}

const dark = window.matchMedia("(prefers-color-scheme: dark)");
const applyTheme = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", applyTheme);
applyTheme();

window.ui = SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  docExpansion: "list",
  defaultModelsExpandDepth: 0,
  displayRequestDuration: true,
  filter: true,
  requestInterceptor: addCsrf,
  showCommonExtensions: true,
  tryItOutEnabled: true,
  validatorUrl: null,
});
showIdentity();
window.addEventListener("focus", showIdentity);
