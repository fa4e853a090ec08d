#!/usr/bin/env bash
# tests/bench/plot.sh CURVES PICTURE.png: draw the curves of a benchmark, as curve.h writes them: a line of axes, then
# name, x and y with tabs between, a curve a name.
set -euo pipefail

# a benchmark may have nothing that grows
[ -e "$1" ] && [ "$(wc -l <"$1")" -gt 1 ] || exit 0

{
    printf 'set terminal pngcairo size 1000,650\nset output "%s"\n' "$2"
    printf 'set logscale xy\nset grid\nset key outside right\n'
    awk -F '\t' 'NR == 1 { printf "set xlabel \"%s\"\nset ylabel \"%s\"\n", $1, $2; next }
        !($1 in n) { order[++m] = $1 }
        { n[$1] = n[$1] $2 " " $3 "\n" }
        END {
            for (i = 1; i <= m; i++)
                printf "$c%d << EOD\n%sEOD\n", i, n[order[i]]
            for (i = 1; i <= m; i++)
                printf "%s $c%d using 1:2 with linespoints title \"%s\"", i == 1 ? "plot" : ",", i, order[i]
            print ""
        }' "$1"
} | gnuplot
echo "curves: $2"
