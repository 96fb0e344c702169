#!/bin/sh
# Brings both of Temporal's databases to the schema of this image's version. Runs before every
# start of the server, and does nothing when the schema is already there.
set -eu

export SQL_HOST=${SQL_HOST:-postgres} SQL_PORT=${SQL_PORT:-5432}
export SQL_PLUGIN=postgres12_pgx SQL_USER=temporal
SQL_PASSWORD=$(cat "$SQL_PASSWORD_FILE")
export SQL_PASSWORD

# set_up DATABASE SCHEMA, one of the schemas inside of the tool
set_up() {
  temporal-sql-tool --database "$1" setup-schema --version 0.0
  temporal-sql-tool --database "$1" update-schema --schema-name "postgresql/v12/$2"
}

set_up temporal temporal
set_up temporal_visibility visibility
