# Rules of the project's own that make lint checks.

load common

lint() { awk -f "$SPX_ROOT/share/awk-end.awk" "$@"; }

# shellcheck disable=SC2016
@test "END of an awk program that hides an exit before it is found" {
    local q="'"
    printf '%s\n' "awk -F, $q" '    $1 > 1 { exit 1 }' "    END { exit NR != 3 }$q a | grep b" >hidden
    printf '%s\n' "awk $q{ if (\$1 > 1) exit bad = 1 } END { exit NR != 3 }$q" >forgotten
    printf '%s\n' "awk $q{ n++; exit 1 }$q x && awk $q{ exit 1 }" "END { exit !n }$q" >second
    printf '%s\n' '$1 > 1 { exit 1 }' 'END { exit n }' >whole.awk
    printf '%s\n' "awk $q{ exit bad = 1 } END { exit bad || NR != 3 }$q" "awk $q{ exit 1 } END { if (!n) exit 1 }$q" \
        "awk $q/x/ { exit } END { exit !n }$q; awk $q{ exit 1 }$q" >right
    local f
    for f in hidden:3 forgotten:1 second:2 whole.awk:2; do
        run lint "${f%:*}" right
        [ "$status" -eq 1 ]
        [[ $output == "$f: END sets"* ]]
        [ "${#lines[@]}" -eq 1 ]
    done
    run lint right
    [ "$status" -eq 0 ] && [ -z "$output" ]
}
