#!/bin/sh
# Tells the version of its image.
set -eu

echo "{\"version\": $(cat /version)}" >"$AOD_OUTPUT"
