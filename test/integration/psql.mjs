// Stands for psql where deploy/postgres/create-databases.sh runs outside of its image: runs what is
// on standard input, statement by statement, with the variables that --set gives it. It connects
// to PSQL_URL.
import { text } from 'node:stream/consumers';
import { parseArgs } from 'node:util';
import postgres from 'postgres';

const { values } = parseArgs({
  options: { username: { type: 'string' }, set: { type: 'string', multiple: true } },
});
const variables = new Map(
  (values.set ?? []).map((pair) => [
    pair.slice(0, pair.indexOf('=')),
    pair.slice(pair.indexOf('=') + 1),
  ]),
);
const variable = (name) => {
  const value = variables.get(name);
  if (value === undefined) throw new Error(`There is no variable ${name}.`);
  return value;
};

const url = new URL(process.env.PSQL_URL);
if (url.username !== values.username) throw new Error(`PSQL_URL is not of ${values.username}.`);
const sql = postgres(url.href, { max: 1, onnotice: () => undefined });
try {
  for (const statement of (await text(process.stdin)).split(/;\s*$/m)) {
    const filled = statement
      .replace(/:"(\w+)"/g, (_, name) => `"${variable(name).replaceAll('"', '""')}"`)
      .replace(/:'(\w+)'/g, (_, name) => `'${variable(name).replaceAll("'", "''")}'`);
    if (filled.trim() !== '') await sql.unsafe(filled);
  }
} finally {
  await sql.end();
}
