# specplot: pictures of products are what they say: size, not blank, axes and marks from the data.
load common

setup_file() { example_data; }

# size and content of a picture: WIDTH HEIGHT, then more than 30 colours and 2 % ink
shows() {
    local w h colours ink
    read -r w h colours ink < <(png_look "$1")
    echo "$1: $w x $h, $colours colours, $ink per mille"
    [ "$w $h" = "$2" ] && [ "$colours" -gt 30 ] && [ "$ink" -gt 20 ]
}

# ranges of an axis in a program: "LO HI" a line
ranges() { sed -n "s/^set $1range \[\(.*\):\(.*\)\]/\1 \2/p" "$2"; }

# lines of a data block in a program
block() { awk -v name="\$$1" '/^EOD/ { on = 0 } on; $1 == name && $2 == "<<" { on = 1 }' "$2"; }

@test "frame: an image of all spectra and one of them, in three formats" {
    need_program gnuplot
    local d=$BATS_FILE_TMPDIR/data
    specplot -q --size 450,320 --zoom 1 -o a.png "$d/frame-r0.h5"
    shows a.png "450 320"
    specplot -q --size 450,320 --zoom 2 -o b.png "$d/frame-r0.h5"
    shows b.png "900 640"
    specplot -q --size 450,320 -o a.svg "$d/frame-r0.h5"
    grep -q '<svg.* width="450" height="320"' a.svg || grep -q 'viewBox="0 0 450 320"' a.svg
    grep -q 'data:image/png' a.svg
    grep -q 'frame-r0.h5: 8 spectra' a.svg
    specplot -q -o a.pdf "$d/frame-r0.h5"
    [ "$(head -c 5 a.pdf)" = %PDF- ]
}

@test "frame: axes from the data" {
    local d=$BATS_FILE_TMPDIR/data
    specplot --script -s 2 "$d/frame-r0.h5" >a.gp
    h5table --csv -s 2 "$d/frame-r0.h5" >a.csv
    [ "$(ranges x a.gp)" = "6400 6600" ]
    [ "$(ranges y a.gp | head -n 1)" = "-0.5 7.5" ]
    # the spectrum in the program is the frame's, and the axis holds 99 % of it
    block s0 a.gp | paste -d ' ' - <(tail -n +2 a.csv | tr , ' ') | awk '
        { good = $9 > 0 && $10 == 0; bad += abs($1 - $7) > 1e-3 || good != ($2 != "NaN") }
        good { n++; bad += abs($2 - $8) > 1e-6 * abs($8) || abs($4 - $2 - 1 / sqrt($9)) > 1e-4 * abs($2) }
        function abs(x) { return x < 0 ? -x : x }
        END { print n, bad; exit !(n > 200 && bad == 0) }'
    ranges y a.gp | tail -n 1 >range
    awk -F '[ ,]' 'NR == FNR { lo = $1; hi = $2; next } FNR > 1 && $3 > 0 { n++; inside += $2 >= lo && $2 <= hi }
        END { exit !(n > 200 && inside >= 0.99 * n) }' range a.csv
}

@test "fit: data, model and residuals are those of the products" {
    local d=$BATS_FILE_TMPDIR/data
    specplot --script -s 2 "$d/rv.h5" "$d/spectra.h5" >a.gp
    h5table --csv -s 2 "$d/spectra.h5" | grep '^r,' >data.csv
    h5table --csv -s 2 "$d/rv.h5" | grep '^r,' >model.csv
    paste -d ' ' <(block s1 a.gp) <(block r1 a.gp) <(tr , ' ' <data.csv) <(tr , ' ' <model.csv) | awk '
        $2 != "NaN" { n++; r = ($11 - $16) * sqrt($12)
            bad += abs($5 - $16) > 1e-5 * abs($16) || $8 == "NaN" || abs($8 - r) > 1e-3; chi2 += r * r }
        function abs(x) { return x < 0 ? -x : x }
        END { print n, bad, chi2 / n > "counts"; printf "r: χ²/N = %.2f\n", chi2 / n; exit !(n > 200 && bad == 0) }' >label
    grep -qF "'$(cat label)'" a.gp
    [ "$(ranges x a.gp | tail -n 1)" = "8500 8700" ]
    # the same with frames, chosen by target
    specplot --script -k fit --targetid "$(h5table --csv -c TARGETID "$d/frame-r0.h5" | sed -n 4p)" \
        "$d/rv.h5" "$d"/frame-?0.h5 >b.gp
    [ "$(block s1 b.gp | cut -d ' ' -f 1-4)" = "$(block s1 a.gp | cut -d ' ' -f 1-4)" ]
    # lines of this star: H alpha at its velocity
    local v
    v=$(h5table --csv -t /rvfit/table -c VRAD "$d/rv.h5" | sed -n 4p)
    awk -v v="$v" '/nohead.*/ && $6 > 6500 && $6 < 6640 { sub(",", "", $6); n += ($6 - 6564.61 * (1 + v / 299792.458)) ^ 2 < 1e-3 }
        END { exit n != 1 }' a.gp
}

@test "fit: the models of all arms are on the picture" {
    need_program gnuplot
    local d=$BATS_FILE_TMPDIR/data
    specplot -q --size 600,600 --zoom 1 -o a.png "$d/rv.h5" "$d/spectra.h5"
    shows a.png "600 600"
    # blue, red and purple, one below the other
    png_look a.png 0072B2 D55E00 9B3D8F | awk 'NR > 1 { if ($2 < 100 || $5 < last || $6 > NR * 200) exit 1; last = $5 + 100 }'
}

@test "from a pipe, in folders with odd names, without gnuplot" {
    local d=$BATS_FILE_TMPDIR/data odd="a'\`touch hit\`\$(touch hit)b.h5"
    specplot -q --script <"$d/frame-r0.h5" >a.gp
    h5merge -q "$d/frame-b0.h5" "$d/frame-r0.h5" | specplot -q --script -o b.gp
    [ "$(ranges x b.gp)" = "5000 6600" ]
    cp "$d/frame-r0.h5" "$odd"
    mkdir bin
    fails_with 4 '*gnuplot*installed*' env PATH="$PWD/bin" "$SPX_BUILD/bin/specplot" -o p.png "$d/frame-r0.h5"
    env PATH="$PWD/bin" "$SPX_BUILD/bin/specplot" -q --script "$odd" >c.gp
    need_program gnuplot
    specplot -q -o p.png "$odd"
    [ ! -e hit ]
    specplot -q <"$d/frame-r0.h5" >q.png
    shows q.png "1800 1280"
}

@test "the first failure is one line: status and remedy" {
    local d=$BATS_FILE_TMPDIR/data
    fails_with 2 '*p.gif*.png, .svg or .pdf*' specplot -o p.gif "$d/frame-r0.h5"
    fails_with 2 '*--spectrum*0 to 7, not 8*' specplot -s 8 -o p.png "$d/frame-r0.h5"
    fails_with 2 '*exclude each other*' specplot -s 1 --targetid 2 -o p.png "$d/frame-r0.h5"
    fails_with 2 '*--wavelength*no spectrum has light*' specplot -w 1,2 -o p.png "$d/frame-r0.h5"
    fails_with 2 '*--size*' specplot --size 10 -o p.png "$d/frame-r0.h5"
    fails_with 3 '*no spectrum has TARGETID 5*' specplot --targetid 5 -o p.png "$d/frame-r0.h5"
    fails_with 3 '*has no /rvfit/table*rvs-fit*' specplot -k fit -o p.png "$d/frame-r0.h5"
}
