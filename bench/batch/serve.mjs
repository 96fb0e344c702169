import { createServer } from 'node:http';

/**
 * Serves PORT. Calls the function for the request's path and responds with the status it returns.
 *
 * @param {Record<string, (body: Buffer, headers: object) => Promise<{ status: number }>>} answers
 */
export function serve(answers) {
  const respond = async (request, response) => {
    try {
      const parts = [];
      for await (const part of request) parts.push(part);
      const answer = answers[request.url];
      const { status } = await answer(Buffer.concat(parts), request.headers);
      response.writeHead(status).end();
    } catch (error) {
      console.error(error);
      response.writeHead(500).end(String(error));
    }
  };
  // Never rejects, because `respond` handles its own errors.
  const server = createServer((request, response) => void respond(request, response));
  server.listen(Number(process.env.PORT), '127.0.0.1', () => {
    console.log(JSON.stringify({ ready: `http://127.0.0.1:${server.address().port}` }));
  });
}
