#!/bin/sh
# From nothing to a plan, in .demo. The argument is the stoker command to use.
set -eu
stoker=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
rm -rf .demo && mkdir .demo && cd .demo

say() { printf '\n$ %s\n' "$*"; }

say stoker init && "$stoker" init
say stoker check && "$stoker" check
say stoker check --list && "$stoker" check --list
printf '\nThe study file is .demo/params.yaml; its comments explain it. Break it and check again:\n'
sed 's/{lr}/{learning-rate}/; s/uniform/unifrom/' params.yaml > broken.yaml
say stoker check broken.yaml && { "$stoker" check broken.yaml || [ $? -eq 2 ]; }
