#!/bin/sh
# Creates the namespace of the service, once the server answers. Finished workflows are kept for
# 30 days: past that the rows in PostgreSQL tell what happened.
set -eu

# The CLI reads TEMPORAL_ADDRESS itself.
attempts=0
until temporal operator cluster health >/dev/null 2>&1; do
  attempts=$((attempts + 1))
  # A minute: the server has opened its port by now and joins its own cluster within seconds.
  if [ "$attempts" -ge 60 ]; then
    echo "Temporal at $TEMPORAL_ADDRESS did not become healthy within a minute." >&2
    exit 1
  fi
  sleep 1
done

if temporal operator namespace describe --namespace "$TEMPORAL_NAMESPACE" >/dev/null 2>&1; then
  echo "The namespace $TEMPORAL_NAMESPACE is there."
else
  temporal operator namespace create --namespace "$TEMPORAL_NAMESPACE" --retention 720h
fi
