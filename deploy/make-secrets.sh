#!/bin/sh
# Makes the secrets that docker-compose.yml mounts, each in a file of its own. What is there
# already is kept: a new fingerprint secret, for instance, would make old replays mismatch.
#
# usage: deploy/make-secrets.sh [directory]
set -eu

directory=${1:-secrets}

# Before anything is made, so that nobody is left with some of the secrets.
if [ ! -e "$directory/proxy_certificate" ] && ! command -v openssl >/dev/null; then
  echo "deploy/make-secrets.sh needs openssl: install it, and run this again." >&2
  exit 1
fi

# The directory keeps others on the host out. The files are readable inside of a container by
# whichever user its process runs as.
umask 077
mkdir -p "$directory"
chmod 700 "$directory"

# 24 random bytes or as many as asked, as hexadecimal digits: nothing that a URL would have to escape.
random() {
  od -An -N"${1:-24}" -tx1 /dev/urandom | tr -d ' \n'
}

# keep NAME VALUE
keep() {
  if [ -e "$directory/$1" ]; then
    echo "$directory/$1 is kept"
    return
  fi
  printf '%s\n' "$2" >"$directory/$1"
  chmod 444 "$directory/$1"
  echo "$directory/$1 is made"
}

for name in postgres_password temporal_database_password sandbox_bank_token \
  sandbox_bank_callback_secret fingerprint_secret codec_token grafana_admin_password; do
  keep "$name" "$(random)"
done

# Wraps the keys of beneficiaries' details. Keep a copy where the database's backups are not: without
# it nothing decrypts them.
keep master_key "$(random 32)"

# Signs webhooks, beside the endpoints' own secrets; the API publishes its public half.
keep webhook_signing_keys "whsk_$(head -c 32 /dev/urandom | base64)"

# Encrypts what Temporal stores. Keep a key until every workflow that it has encrypted is deleted.
keep temporal_encryption_keys "$(date +%Y-%m):$(random 32)"

# Who may see the Temporal UI, and what the proxy asks the codec server with, in the proxy's own form.
keep proxy_operators "global
  setenv CODEC_TOKEN $(cat "$directory/codec_token")
userlist operators
  user operator insecure-password $(random)"

# A certificate that the proxy signed itself: put one that your customers trust in its place, with its
# private key in the same file.
if [ ! -e "$directory/proxy_certificate" ]; then
  pair=$(openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 365 \
    -subj "/CN=localhost" -addext "subjectAltName=DNS:localhost,IP:127.0.0.1" \
    -keyout - -out - 2>/dev/null) || {
    echo "openssl cannot make a certificate: version 3.0 or newer is needed." >&2
    exit 1
  }
fi
keep proxy_certificate "${pair:-}"

# Empty but while the callback secret is changed; see docs/operations.md.
keep sandbox_bank_callback_secret_previous ""

# The owner of the tables, and what the API, the workers and operators connect as.
for role in corridor corridor_api corridor_worker corridor_operator corridor_sign_in; do
  keep "${role}_database_password" "$(random)"
  password=$(cat "$directory/${role}_database_password")
  keep "${role}_database_url" "postgres://$role:$password@postgres:5432/corridor"
done
