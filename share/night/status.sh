#!/usr/bin/env bash
# status.sh FOLDER < PRODUCTS: how many of a night's products, which FOLDER holds, are done, missing and failed, by kind;
# then the failures, first those that others follow from, with the command that repeats each. The status is 1 when anything
# is missing or failed.
set -euo pipefail
folder=$1
record() { sed -n "s/^$2: //p" "$1"; }
section() { sed -n "/^$2:\$/,/^[a-z]/s/^    //p" "$1"; }

bad=0
declare -A made=() missing=() failed=()
kinds=() records=()
while read -r product; do
    kind=${product##*/}
    kind=${kind%%-*}
    if [ -z "${made[$kind]:-}" ]; then
        kinds+=("$kind")
        made[$kind]=0 missing[$kind]=0 failed[$kind]=0
    fi
    if [ -e "$product" ]; then
        made[$kind]=$((${made[$kind]} + 1))
    elif [ -e "$product.failed" ]; then
        failed[$kind]=$((${failed[$kind]} + 1)) bad=1
        records+=("$product.failed")
    else
        missing[$kind]=$((${missing[$kind]} + 1)) bad=1
    fi
done < <(tr -s ' ' '\n')
printf '%-10s %8s %8s %8s\n' "$folder" "done" missing failed
for kind in "${kinds[@]}"; do
    printf '%-10s %8d %8d %8d\n' "$kind" "${made[$kind]}" "${missing[$kind]}" "${failed[$kind]}"
done

follow=()
for r in ${records[@]+"${records[@]}"}; do
    if [ -n "$(record "$r" because)" ]; then
        follow+=("$r")
        continue
    fi
    printf '\n%s failed, status %s\n' "$(record "$r" product)" "$(record "$r" status)"
    section "$r" message | sed 's/^/    /'
    printf '  again: cd %q\n' "$(record "$r" folder)"
    section "$r" command | sed 's/^/    /'
done
[ ${#follow[@]} -eq 0 ] || printf '\nThese follow from that:\n'
for r in ${follow[@]+"${follow[@]}"}; do
    printf '    %s without %s\n' "$(record "$r" product)" "$(record "$r" because)"
done
exit $bad
