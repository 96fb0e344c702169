import type { Sql } from './client.js';

/** The kinds of process that connect with fewer rights than the owner; see 0001_roles.sql. */
export const databaseRoles = ['api', 'worker', 'operator', 'sign_in'] as const;
export type DatabaseRole = (typeof databaseRoles)[number];
export type DatabaseUrls = Readonly<Record<DatabaseRole, string>>;
type KnownUrls = { readonly [role in DatabaseRole]?: string | undefined };

/** Creates a URL for each role's own login, named after the owner's database, e.g. `corridor_api`. */
export function loginUrls(ownerUrl: string, createPassword: () => string): DatabaseUrls {
  const urlOf = (role: DatabaseRole) => {
    const url = new URL(ownerUrl);
    url.username = `${url.pathname.slice(1)}_${role}`;
    url.password = createPassword();
    return url.href;
  };
  return {
    ...{ api: urlOf('api'), worker: urlOf('worker') },
    ...{ operator: urlOf('operator'), sign_in: urlOf('sign_in') },
  };
}

/** Creates the logins of these URLs, or sets the passwords of those that exist. */
export async function allowLogins(sql: Sql, urls: KnownUrls): Promise<void> {
  for (const role of databaseRoles) {
    const url = urls[role];
    if (url === undefined) continue;
    const { username, password } = new URL(url);
    await sql`select allow_login(${`corridor_${role}`}, ${decodeURIComponent(username)},
      ${decodeURIComponent(password)})`;
  }
}
