// Writes the renderer of the API reference to the pages folder of a build. This plugin is the only package
// that contains it in a single file; the package named after the renderer has 250 dependencies.
import { writeFileSync } from 'node:fs';
import plugin from '@scalar/fastify-api-reference';

const file = new URL('../dist/src/api/pages/scalar.js', import.meta.url);
const handlers = new Map();
const server = { route: ({ url, handler }) => handlers.set(url, handler) };
plugin(server, { routePrefix: '/', configuration: { url: '/openapi.json' } }, () => {});
const reply = { header: () => reply, send: (script) => writeFileSync(file, script) };
handlers.get('/js/scalar.js')({}, reply);
