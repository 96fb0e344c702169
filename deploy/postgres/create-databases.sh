#!/bin/sh
# Runs once, when the image fills an empty data volume: a role for the service and one for
# Temporal, each the owner of its own databases and of nothing else, and the roles that the
# service's processes connect as. What those may do the migrations say.
set -eu

# create_role ROLE, whose password is in the secret ROLE_database_password
create_role() {
  psql --username postgres --set ON_ERROR_STOP=1 --set role="$1" \
    --set password="$(cat "/run/secrets/$1_database_password")" <<'SQL'
create role :"role" login password :'password';
SQL
}

# create_database DATABASE ROLE
create_database() {
  psql --username postgres --set ON_ERROR_STOP=1 --set database="$1" --set role="$2" <<'SQL'
create database :"database" owner :"role";
revoke all on database :"database" from public;
SQL
}

# let_in ROLE DATABASE
let_in() {
  psql --username postgres --set ON_ERROR_STOP=1 --set role="$1" --set database="$2" <<'SQL'
grant connect on database :"database" to :"role";
SQL
}

create_role corridor
create_database corridor corridor
for role in corridor_api corridor_worker corridor_operator corridor_sign_in; do
  create_role "$role"
  let_in "$role" corridor
done
create_role temporal
create_database temporal temporal
create_database temporal_visibility temporal
