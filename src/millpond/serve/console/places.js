// The addresses of the console's own pages.

export function streamHref(name) {
  return `#/streams/${name.split("/").map(encodeURIComponent).join("/")}`;
}

export function queryHref(name) {
  return `#/query?${new URLSearchParams({ stream: name })}`;
}
