#!/usr/bin/env bash
# Prints charts/skopos/values.schema.json: charts/skopos/values.schema.base.json, with the schemas of both configurations from the program.
# Needs jq and a built `skopos`.
#
#   scripts/chart-schema.sh >charts/skopos/values.schema.json       with target/debug/skopos
#   SKOPOS=path scripts/chart-schema.sh                             with that binary
set -euo pipefail
cd "$(dirname "$0")/.."
SKOPOS=${SKOPOS:-target/debug/skopos}

# The names of definitions get the program's prefix: both schemas have a `Span`. A field with another name (`x-alias`) is accepted under
# both, as the program accepts it. Nothing is required of the whole, because the chart gives defaults and checks the rest itself.
# shellcheck disable=SC2016
part='
def prefixed: if type == "object" and (."$ref" | type) == "string" then ."$ref" |= sub("^#/[$]defs/"; "#/$defs/\($prefix).") else . end;
def aliased:
  if type == "object" and (.properties | type) == "object" then
    reduce (.properties | to_entries[] | select((.value | type) == "object" and .value."x-alias")) as $field (.;
      .properties[$field.value."x-alias"] = ($field.value | del(."x-alias"))
      | if (.required // []) | index($field.key) then
          .required -= [$field.key]
          | .anyOf = [{required: [$field.key]}, {required: [$field.value."x-alias"]}]
          | if .required == [] then del(.required) else . end
        else . end)
  else . end;
walk(prefixed | aliased)
| (."$defs" | with_entries(.key |= "\($prefix).\(.)")) + {"\($prefix).Config": del(."$defs", ."$schema", .required)}'

gateway=$("$SKOPOS" serve --print-schema | jq --arg prefix gateway "$part")
notify=$("$SKOPOS" notify --print-schema | jq --arg prefix notify "$part")
jq --argjson gateway "$gateway" --argjson notify "$notify" '."$defs" += $gateway + $notify' charts/skopos/values.schema.base.json
