// Writes the renderer of the API reference beside the pages of a build. This plugin is the only
// package that has all of it in one file; the package of the same name brings 250 others.
import { writeFileSync } from 'node:fs';
import plugin from '@scalar/fastify-api-reference';

const file = new URL('../dist/src/api/pages/scalar.js', import.meta.url);
const handlers = new Map();
const server = { route: ({ url, handler }) => handlers.set(url, handler) };
plugin(server, { routePrefix: '/', configuration: { url: '/openapi.json' } }, () => {});
const reply = { header: () => reply, send: (script) => writeFileSync(file, script) };
handlers.get('/js/scalar.js')({}, reply);
