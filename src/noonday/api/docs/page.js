"use strict";
const VERBS = ["get", "post", "put", "patch", "delete"];
const $ = id => document.getElementById(id);
let api;

function el(tag, props = {}, ...children) {
  const node = Object.assign(document.createElement(tag), props);
  node.append(...children.filter(child => child !== null && child !== undefined));
  return node;
}

// Markdown, as far as the document uses it: paragraphs, lists, `code` and **bold**. Text nodes only.
function inline(text) {
  return text.split(/(`[^`]+`|\*\*[^*]+\*\*)/).map(part =>
    part.startsWith("`") && part.length > 1 ? el("code", {}, part.slice(1, -1)) : part.startsWith("**") && part.length > 3 ? el("b", {}, part.slice(2, -2)) : part);
}

function markdown(text, className = "text") {
  const blocks = (text || "").trim().split(/\n\s*\n/).filter(Boolean);
  return el("div", { className }, ...blocks.map(block => {
    const items = block.split(/^\s*- /m);
    const lead = items.shift().trim();
    const list = items.length ? el("ul", {}, ...items.map(item => el("li", {}, ...inline(item.replace(/\s+/g, " ").trim())))) : null;
    return el("div", {}, lead ? el("p", {}, ...inline(lead.replace(/\s+/g, " "))) : null, list);
  }));
}

const followed = ref => ref.split("/").slice(1).reduce((at, step) => at[step], api);
const resolve = schema => schema && schema.$ref ? { ...followed(schema.$ref), ...schema, $ref: undefined } : schema || {};
const options = schema => schema.oneOf || schema.anyOf || null;

function kind(schema) {
  const name = schema.$ref ? schema.$ref.split("/").pop() : "";
  schema = resolve(schema);
  if (schema.enum) return schema.enum.join(" | ");
  if (options(schema) && !name) return options(schema).map(kind).join(" | ");
  if (schema.type === "array") return kind(schema.items || {}) + "[]";
  const range = [schema.minimum, schema.maximum];
  const bounds = range.some(end => end !== undefined) ? ` ${range[0] ?? ""}..${range[1] ?? ""}` : "";
  return (name || schema.format || schema.type || "any") + bounds;
}

function sample(schema) {
  schema = resolve(schema);
  if (schema.examples) return schema.examples[0];
  if (schema.default !== undefined && schema.default !== null) return schema.default;
  if (schema.enum) return schema.enum[0];
  if (options(schema)) return sample(options(schema)[0]);
  if (schema.type === "array") return [sample(schema.items)];
  if (schema.properties) return Object.fromEntries((schema.required || []).map(name => [name, sample(schema.properties[name])]));
  if (schema.format === "date-time") return new Date().toISOString().slice(0, 19) + "Z";
  return { integer: 1, number: 1, boolean: false, string: "text" }[schema.type] ?? {};
}

function fields(schema) {
  schema = resolve(schema);
  if (options(schema)) return el("div", {}, ...options(schema).map(variant => {
    const whole = resolve(variant);
    return el("details", {}, el("summary", {}, el("b", {}, whole.title || kind(variant)), " ", ...inline(whole.description || "")), fields(variant));
  }));
  if (schema.type === "array") return fields(schema.items);
  if (!schema.properties) return el("p", {}, kind(schema));
  const needed = new Set(schema.required || []);
  return el("table", {}, el("tbody", {}, ...Object.entries(schema.properties).map(([name, field]) => row(name, field, needed.has(name)))));
}

function row(name, field, needed, description) {
  const standard = field.default ?? resolve(field).default;
  const hints = [description || field.description || resolve(field).description, standard !== undefined && standard !== null ? `default ${JSON.stringify(standard)}` : null];
  const nested = [field, field.items, ...(options(field) || [])].find(part => part && resolve(part).properties);
  return el("tr", {}, el("td", {}, el("code", { className: needed ? "needed" : "" }, name)),
    el("td", {}, nested ? el("details", {}, el("summary", {}, kind(field)), fields(nested)) : kind(field)), el("td", {}, ...inline(hints.filter(Boolean).join(" - "))));
}

function quoted(text) { return "'" + text.replaceAll("'", "'\\''") + "'"; }

function curl(request) {
  const parts = ["curl -sS"];
  if (request.method !== "GET") parts.push("-X " + request.method);
  if (request.secured) parts.push(`-H "Authorization: Bearer $TOKEN"`);
  for (const [name, value] of Object.entries(request.headers)) parts.push("-H " + quoted(`${name}: ${value}`));
  if (request.body !== undefined) parts.push("-H 'Content-Type: application/json'", "-d " + quoted(request.body));
  return parts.concat(quoted(location.origin + request.url)).join(" ");
}

// crypto.randomUUID exists only over HTTPS and on this machine.
function freshKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), byte => byte.toString(16).padStart(2, "0")).join("");
}

const isKey = parameter => parameter.name === "Idempotency-Key" && parameter.required;

function tryOut(path, verb, operation) {
  const inputs = (operation.parameters || []).map(p => ({ ...p, box: el("input", { placeholder: kind(p.schema), ariaLabel: p.name }) }));
  const content = operation.requestBody && operation.requestBody.content["application/json"].schema;
  const body = content && el("textarea", { value: JSON.stringify(sample(content), null, 2), spellcheck: false, ariaLabel: "body" });
  const line = el("pre"), answer = el("pre", { hidden: true });
  const renew = () => { for (const p of inputs) if (isKey(p)) p.box.value = freshKey(); };
  const request = () => {
    const query = new URLSearchParams(), headers = {};
    let url = path;
    for (const { name, in: place, box } of inputs) {
      if (place === "path") url = url.replace(`{${name}}`, box.value ? encodeURIComponent(box.value) : `{${name}}`);
      else if (place === "header") { if (box.value) headers[name] = box.value; }
      else if (box.value) query.set(name, box.value);
    }
    return { headers, method: verb.toUpperCase(), url: url + (query.size ? "?" + query : ""), body: body ? body.value : undefined, secured: !!operation.security };
  };
  const show = () => { line.textContent = curl(request()); };
  const send = async () => {
    const { method, url, body, secured, headers: given } = request();
    const headers = { ...given, ...(secured && { Authorization: "Bearer " + $("token").value.trim() }), ...(body !== undefined && { "Content-Type": "application/json" }) };
    answer.hidden = false;
    try {
      const response = await fetch(url, { method, headers, body });
      const text = await response.text();
      let shown = text;
      try { shown = JSON.stringify(JSON.parse(text), null, 2); } catch { /* not JSON: shown as it is */ }
      answer.textContent = `${response.status} ${response.statusText}\n${shown}`;
      renew(); // the next click is another request, not a repetition of this one
      show();
    } catch (error) { answer.textContent = String(error); }
  };
  const copy = el("button", { onclick: () => navigator.clipboard.writeText(line.textContent) }, "Copy");
  const node = el("div", { oninput: show }, inputs.length ? el("table", {}, el("tbody", {}, ...inputs.map(p =>
    el("tr", {}, el("td", {}, el("code", { className: p.required ? "needed" : "" }, p.name)), el("td", {}, p.box), el("td", {}, ...inline(p.schema.description || p.description || "")))))) : null,
    body, el("h3", {}, "curl"), line, el("div", { className: "row" }, el("button", { onclick: send }, "Send"), copy), answer);
  renew();
  show();
  return node;
}

function responses(operation) {
  return el("table", {}, el("tbody", {}, ...Object.entries(operation.responses).map(([status, response]) => {
    response = resolve(response);
    const content = Object.values(response.content || {})[0];
    return el("tr", {}, el("td", {}, el("code", {}, status)), el("td", {}, content ? kind(content.schema) : ""), el("td", {}, markdown(response.description)));
  })));
}

function inside(path, verb, operation) {
  const content = operation.requestBody && operation.requestBody.content["application/json"].schema;
  const result = operation.responses[Object.keys(operation.responses)[0]].content;
  return el("div", { className: "inside" },
    markdown(operation.description),
    operation.security ? el("p", {}, "Scope: ", el("code", {}, operation.security[0].bearer.join(" "))) : null,
    el("h3", {}, "Try it"), tryOut(path, verb, operation),
    content ? el("h3", {}, "Body") : null, content ? fields(content) : null,
    result ? el("h3", {}, "Answer") : null, result ? fields(Object.values(result)[0].schema) : null,
    el("h3", {}, "Status"), responses(operation));
}

function render() {
  $("about").replaceChildren(markdown(api.info.description));
  for (const { name } of api.tags) {
    $("index").append(el("h2", {}, name));
    $("main").append(el("h2", {}, name));
    for (const [path, operations] of Object.entries(api.paths)) for (const verb of VERBS) {
      const operation = operations[verb];
      if (!operation || operation.tags[0] !== name) continue;
      const node = el("details", { className: "op", id: operation.operationId },
        el("summary", {}, el("span", { className: "verb " + verb }, verb.toUpperCase()), el("code", {}, path), el("span", {}, ...inline(operation.summary))));
      node.addEventListener("toggle", () => node.append(inside(path, verb, operation)), { once: true });
      $("main").append(node);
      $("index").append(el("a", { className: "op", href: "#" + operation.operationId, onclick: () => { node.open = true; } }, operation.summary.replace(/[.:](?!\d).*/, "")));
    }
  }
  const chosen = location.hash && $(location.hash.slice(1));
  if (chosen) { chosen.open = true; chosen.scrollIntoView(); }
}

$("token").value = sessionStorage.getItem("noonday-token") || "";
$("token").addEventListener("input", () => sessionStorage.setItem("noonday-token", $("token").value));
fetch("/openapi.json").then(response => response.json()).then(document => { api = document; render(); })
  .catch(error => { $("about").textContent = "The description of the API could not be loaded: " + error; });
