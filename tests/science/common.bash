# shellcheck shell=bash
# Provides what the scripts of accuracy share: templates of simulated stars, columns of products, robust figures.

# make_templates FILE SETUP...: templates of the simulator's stars, of 5900 to 9200 Angstrom at most, for setups of
# rvs-template (NAME:FROM:TO:STEP:FWHM=...). Leaves no other file.
make_templates() {
    local out=$1 setups=() s
    for s in "${@:2}"; do setups+=(--setup "$s"); done
    specx-sim -q --library library --wavelength 5900,9200 --axis teff=4500,5000,5500,6000,6500,7000 \
        --axis logg=3,3.5,4,4.5,5 --axis feh=-1.5,-1,-0.5,0 --axis alpha=0,0.4
    fits2h5 -q --vacuum library | rvs-template -q --library-resolution none "${setups[@]}" -o "$out"
    rm -r library
}

# column NAME,... FILE [TABLE]: columns of a table, a line a row, blanks between.
column() { h5table --csv -c "$1" ${3:+-t "$3"} "$2" | tail -n +2 | tr , ' '; }

# values FILE DATASET: its elements, one a line.
values() {
    h5dump -A 0 -y -w 1 -m %.9g -d "$2" "$1" | awk '/DATA [{]/ { d = 1; next } /[}]/ { d = 0 } d { gsub(/[ ,]/, ""); if ($0 != "") print }'
}

# robust: median and 1.4826 MAD of numbers on standard input, and how many they are.
robust() {
    sort -g | awk '{ x[NR] = $1 } END { m = (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2
        for (i = 1; i <= NR; i++) print x[i] - m < 0 ? m - x[i] : x[i] - m, m }' | sort -g |
        awk '{ d[NR] = $1; m = $2 } END { print m, 1.4826 * (d[int((NR + 1) / 2)] + d[int(NR / 2) + 1]) / 2, NR }'
}

# tell_pulls LABEL: of lines "value error truth" on standard input, says median and 1.4826 MAD of (value - truth) / error,
# with their statistical errors, and the number. Leaves them in `pulls`: median, its error, MAD, its error, number.
tell_pulls() {
    awk '$2 > 0 { print ($1 - $3) / $2 }' | robust |
        awk '{ n = sqrt($3); print $1, 1.2533 * $2 / n, $2, 1.1664 * $2 / n, $3 }' >pulls
    awk -v label="$1" '{ printf "%s: (fit - truth) / error: median %+.2f +- %.2f, 1.4826 MAD %.2f +- %.2f, %d stars\n",
        label, $1, $2, $3, $4, $5 }' pulls >&3
}
