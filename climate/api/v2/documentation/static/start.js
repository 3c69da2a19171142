// Starts Swagger UI. Requests that it sends carry the console's session (the cookie, and for
// changes the token against cross-site requests), or the token that the user typed in.
"use strict";

const ROOT = new URL("../", document.baseURI);
const READING = new Set(["GET", "HEAD", "OPTIONS"]);

async function session() {
  try {
    const answer = await fetch(new URL("console/session", ROOT), { cache: "no-store" });
    return answer.ok ? await answer.json() : null;
  } catch {
    return null;
  }
}

// The session may change in another tab, so each change reads its token again.
async function addCsrfToken(request) {
  const headers = request.headers ?? {};
  const hasToken = Object.keys(headers).some((name) => name.toLowerCase() === "x-auth-token");
  if (!hasToken && !READING.has((request.method ?? "GET").toUpperCase())) {
    const csrf = (await session())?.me?.csrf;
    if (csrf) request.headers = { ...headers, "X-Climate-Csrf": csrf };
  }
  return request;
}

function describe(state) {
  const me = state?.me;
  if (state?.signed_in && me) {
    const project = me.project.name ?? me.project.id;
    return `Requests are sent as ${me.user.name ?? me.user.id} in project ${project}.`;
  }
  if (state?.authentication === "none") {
    return "Requests are sent as admin. Use Authorize to send another token (user:project:roles).";
  }
  return "Not signed in. Sign in to the console, or use Authorize to send a token.";
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
  requestInterceptor: addCsrfToken,
  showCommonExtensions: true,
  tryItOutEnabled: true,
  validatorUrl: null,
});
session().then((state) => {
  document.getElementById("identity").textContent = describe(state);
});
