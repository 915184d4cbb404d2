// Requests with Node's own parsers, llhttp for HTTP/1.1 and nghttp2 for HTTP/2, which reject what browsers forgive.
// Arguments: PROTOCOL PORT TOKEN METHOD:PATH...   Prints a JSON array with one answer or error for each.
const [protocol, port, token, ...requests] = process.argv.slice(2);
const origin = `https://127.0.0.1:${port}`;
const fields = { authorization: `Bearer ${token}` };

function overHttp1(method, path) {
  const options = { method, headers: fields, rejectUnauthorized: false, insecureHTTPParser: false, agent: false };
  return new Promise((resolve) => {
    const request = require('node:https').request(origin + path, options, (answer) => {
      let size = 0;
      answer.on('data', (part) => { size += part.length; });
      answer.on('end', () => resolve({ status: answer.statusCode, fields: answer.rawHeaders, size }));
      answer.on('error', (error) => resolve({ error: String(error) }));
    });
    request.on('error', (error) => resolve({ error: String(error) }));
    request.end();
  });
}

function overHttp2(method, path) {
  return new Promise((resolve) => {
    const session = require('node:http2').connect(origin, { rejectUnauthorized: false });
    const done = (answer) => { session.close(); resolve(answer); };
    session.on('error', (error) => done({ error: String(error) }));
    const stream = session.request({ ':method': method, ':path': path, ...fields });
    let status, raw, size = 0;
    stream.on('response', (found, flags, list) => { status = found[':status']; raw = list.slice(2); });
    stream.on('data', (part) => { size += part.length; });
    stream.on('end', () => done({ status, fields: raw, size }));
    stream.on('error', (error) => done({ error: String(error) }));
    stream.end();
  });
}

(async () => {
  const answers = [];
  for (const each of requests) {
    const at = each.indexOf(':');
    const ask = protocol === 'h2' ? overHttp2 : overHttp1;
    answers.push(await ask(each.slice(0, at), each.slice(at + 1)));
  }
  console.log(JSON.stringify(answers));
})();
