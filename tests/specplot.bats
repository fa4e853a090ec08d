# specplot: pictures of products are what they say: size, not blank, axes and marks from the data.
load common

setup_file() {
    example_data
    cd "$BATS_FILE_TMPDIR/data" || return
    specx-flat -q lamp-r0-1.h5 lamp-r0-2.h5 -o flat.h5
    specx-sky -q frame-r0.h5 -o sframe.h5
    specx-flux -q --fit stars-r0.h5 frame-r0.h5 -o cframe.h5
    specx-shift -q image-r0.h5 --wavelength 6420,6580,0.8 --psf-only -o shift.h5
    specx-extract -q --model --spectra 0:3 --wavelength 6440,6480,0.8 image-r0.h5 -o model.h5
    rvs-fit -q --ccf --rows 0:3 --templates templates.h5 spectra.h5 -o ccf.h5
    h5stack -q array.h5 -o stack.h5
    burgers -q --cells 40 --steps 30 -o burgers.h5
}

# values of a dataset, one a line
values() { h5dump -A 0 -y -w 1 -m %.9g -d "$2" "$1" | awk '/DATA [{]/ { d = 1; next } /[}]/ { d = 0 } d { gsub(/[ ,]/, ""); print }'; }

# two lists of numbers agree to this part of the larger one of each pair: near PART A B
near() {
    paste -d ' ' "$2" "$3" | awk -v part="$1" '
        function abs(x) { return x < 0 ? -x : x }
        { n++; big = abs($1) > abs($2) ? abs($1) : abs($2); bad += NF != 2 || !(abs($1 - $2) <= part * big) }
        END { print n + 0, "values,", bad + 0, "differ"; exit !(n > 1 && bad == 0) }'
}

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
    [ "$(ranges y a.gp | sed -n 1p)" = "-0.5 7.5" ]
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

@test "fit: an arm that the fit has no model of says so" {
    local d=$BATS_FILE_TMPDIR/data
    rvs-fit -q -j 1 --rows 0:2 --templates "$d/templates.h5" "$d/frame-b0.h5" -o rv-b.h5
    specplot --script -k fit -s 0 rv-b.h5 "$d/spectra.h5" >a.gp
    grep -q "'b: χ²/N = [0-9]" a.gp
    grep -qF "'r: no model here'" a.gp
    [[ $(<a.gp) != *"= nan"* ]]
}

@test "shifts: axes of files, and of windows of which one is wild" {
    local d=$BATS_FILE_TMPDIR/data
    specplot --script -k shifts "$d/shift.h5" "$d/shift.h5" >a.gp
    grep -qx 'set xtics 1, 1' a.gp
    cp "$d/shift.h5" wild.h5
    h5edit wild.h5 range /shift/window_width_x 0 1 7
    values wild.h5 /shift/window_width_x | sort -g | tail -n 1 | grep -qx 7
    # 700 per cent
    specplot --script wild.h5 | ranges y /dev/stdin | sed -n 3p | awk '{ n++; bad += !($2 < 100 && $1 > -100) } END { exit n != 1 || bad }'
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

# every kind, what the files alone choose, and what they are
kinds=(
    'image - image-r0.h5' 'image - image-r0.h5 model.h5' 'frame - frame-r0.h5' 'frame - spectra.h5'
    'spectrum - spectra.h5' 'shift - shift.h5' 'shifts - shift.h5 shift.h5' 'flat - flat.h5' 'sky kind sframe.h5'
    'flux kind cframe.h5' 'fit - rv.h5 spectra.h5' 'ccf kind ccf.h5' 'corner kind rv.h5 truth-r0.h5' 'stars - rv.h5'
    'truth - rv.h5 truth-r0.h5' 'templates - templates.h5' 'matrix - stack.h5' 'matrix - burgers.h5'
    'matrix - library.h5' 'svd - svd.h5' 'night kind sframe.h5 cframe.h5 frame-b0.h5' 'repeats kind rv.h5 ccf.h5'
    'compare kind frame-r0.h5 model.h5' 'compare kind spectra.h5 frame-z0.h5'
)

@test "every kind of picture is drawn, and chosen by what the files hold" {
    need_program gnuplot
    local k kind how files
    cd "$BATS_FILE_TMPDIR/data"
    [ -e svd.h5 ] || h5svd -q -k 3 frame-b0.h5:/frame/flux -o svd.h5
    for k in "${kinds[@]}"; do
        read -r kind how files <<<"$k"
        # shellcheck disable=SC2086
        specplot -q --size 500,400 --zoom 1 -k "$kind" -o "$BATS_TEST_TMPDIR/a.png" -f $files
        shows "$BATS_TEST_TMPDIR/a.png" "500 400"
        [ "$how" = kind ] || [ "$kind" = spectrum ] || {
            # shellcheck disable=SC2086
            cmp <(specplot -q --script $files) <(specplot -q --script -k "$kind" $files)
        }
    done
    # each word of --kind is here
    diff <(specplot --help=completion | sed -n 's/^--kind\t-k\tKIND\t\([^\t]*\).*/\1/p' | tr ' ' '\n' | grep -vx auto | sort) \
        <(printf '%s\n' "${kinds[@]%% *}" | sort -u)
}

@test "flat, response, sky: the curves are the product's" {
    cd "$BATS_FILE_TMPDIR/data"
    specplot --script flat.h5 >"$BATS_TEST_TMPDIR/a.gp"
    specplot --script -k flux cframe.h5 >"$BATS_TEST_TMPDIR/b.gp"
    specplot --script -k sky sframe.h5 >"$BATS_TEST_TMPDIR/c.gp"
    cd "$BATS_TEST_TMPDIR"
    local d=$BATS_FILE_TMPDIR/data n=251
    # fibre 2 of the flat
    block f2 a.gp | cut -d ' ' -f 2 >a
    values "$d/flat.h5" /flat/flat | sed -n "$((2 * n + 1)),$((3 * n))p" >b
    near 1e-6 a b
    values "$d/flat.h5" /flat/chi2 >a
    near 1e-6 a <(block chi a.gp | cut -d ' ' -f 2)
    block c b.gp | cut -d ' ' -f 2 >a
    values "$d/cframe.h5" /flux/response >b
    near 1e-6 a b
    # the error of the response, per cent
    block c b.gp | cut -d ' ' -f 6 >a
    paste <(values "$d/cframe.h5" /flux/covariance | sed -n "1,${n}p") b | awk '{ printf "%.9g\n", 100 * sqrt($1) / $2 }' >c
    near 1e-5 a c
    # the scatter of the residuals of 2 sky fibres in a cell: all about 1
    block scatter c.gp | awk '$2 != "NaN" { n++; sum += $2 } END { print n, sum / n; exit !(n > 5 && sum / n > 0.3 && sum / n < 2) }'
    [ "$(ranges x c.gp | sed -n 1p)" = "6400 6600" ]
}

@test "truth, corner: differences, pulls and errors are those of the tables" {
    local d=$BATS_FILE_TMPDIR/data
    specplot --script "$d/rv.h5" "$d/truth-r0.h5" >a.gp
    specplot --script -k corner -s 1 "$d/rv.h5" "$d/truth-r0.h5" >b.gp
    h5table --csv -t /rvfit/table -c TARGETID,VRAD,VRAD_ERR,TEFF,TEFF_ERR "$d/rv.h5" | tail -n +2 | sort >fit
    h5table --csv -c TARGETID,VRAD,TEFF "$d/truth-r0.h5" | tail -n +2 | sort >truth
    join -t , fit truth >both
    awk -F , '{ printf "%.6f\n", $2 - $6 }' both >a
    paste -d ' ' a <(block p0 a.gp) | awk '{ n++; bad += ($1 - $3) ^ 2 > 1e-8 } END { exit !(n == 6 && bad == 0) }'
    awk -F , '{ print ($2 - $6) / $3 }' both | sort -g | awk '{ v[NR] = $1 } END { printf "%.2f\n", (v[3] + v[4]) / 2 }' | sed 's/-/−/' >median
    grep -q "'median $(cat median) ± " a.gp
    # panels of the corner plot end three errors from the value, those of the temperature for example
    h5table --csv -t /rvfit/table -c TEFF,TEFF_ERR "$d/rv.h5" | sed -n 3p | tr , ' ' |
        awk '{ printf "%.9g\n%.9g\n", $1 - 3 * $2, $1 + 3 * $2 }' >a
    near 1e-5 a <(ranges x b.gp | awk '$1 > 4000' | sed -n 1p | tr ' ' '\n')
}

@test "shift, cross-correlation: curves of the products, the minimum where the fit is" {
    local d=$BATS_FILE_TMPDIR/data
    specplot --script "$d/shift.h5" >a.gp
    # a curve a fibre, a row between
    block dx a.gp | awk '$2 != "NaN" { print $2 }' >a
    values "$d/shift.h5" /shift/dx >b
    near 1e-5 a b
    specplot --script -k ccf -s 1 "$d/ccf.h5" >b.gp
    values "$d/ccf.h5" /ccf/velocity >a
    near 1e-6 a <(block ccf b.gp | cut -d ' ' -f 1)
    h5table --csv -t /rvfit/table -c VRAD "$d/ccf.h5" | sed -n 3p >v
    block ccf b.gp | awk -v v="$(cat v)" '$NF == 0 { n++; bad += ($1 - v) ^ 2 > 20 ^ 2 } END { exit !(n == 1 && bad == 0) }'
}

@test "image: a region, its traces and its residuals" {
    local d=$BATS_FILE_TMPDIR/data
    specplot --script -r 5:25,30:70 "$d/image-r0.h5" "$d/model.h5" >a.gp
    [ "$(ranges x a.gp | sort -u)" = "4.5 24.5" ]
    [ "$(ranges y a.gp | sort -u)" = "29.5 69.5" ]
    # row 30 of the image
    block data a.gp | sed -n 1p | tr ' ' '\n' >a
    h5dump -A 0 -y -w 1 -m %.9g -d /image/data -s 30,5 -c 1,20 "$d/image-r0.h5" |
        awk '/DATA [{]/ { d = 1; next } /[}]/ { d = 0 } d { gsub(/[ ,]/, ""); print }' >b
    near 1e-5 a b
    # traces rise from row to row, one a fibre
    block traces a.gp | awk 'NF == 0 { n++; last = -1e9; next } { bad += $2 <= last; last = $2 } BEGIN { last = -1e9 } END { exit !(n == 8 && bad == 0) }'
    fails_with 2 '*--region*columns 0 to*' specplot -r 5000:6000,0:10 -o p.png "$d/image-r0.h5"
    fails_with 2 '*--region*' specplot -r 5 -o p.png "$d/image-r0.h5"
}

@test "night: the numbers of frames, and stars seen twice" {
    local d=$BATS_FILE_TMPDIR/data n
    cp "$d/sframe.h5" sframe-r0-00000007.h5
    cp "$d/frame-b0.h5" frame-b0-00000012.h5
    h5edit frame-b0-00000012.h5 range /frame/mask 300 400 4
    specplot -k night --table frame-b0-00000012.h5 sframe-r0-00000007.h5 >a
    cut -f 1,2 a | tail -n +2 | diff - <(printf 'r0\t00000007\nb0\t00000012\n')
    # of the targets alone: six of eight fibres
    h5table --csv -t /scores -c MEDIAN_RAW_SNR_R sframe-r0-00000007.h5 | tail -n +2 >snr
    h5table --csv -t /fibermap -c OBJTYPE sframe-r0-00000007.h5 | tail -n +2 | paste -d ' ' snr - |
        awk '$2 == "TGT" { print $1 }' | sort -g | awk '{ v[NR] = $1 } END { print (v[3] + v[4]) / 2; print 1 }' >expected
    sed -n 2p a | cut -f 6 | cat - <(echo 1) >measured
    near 1e-5 expected measured
    # masked bins, and what the second has not: sky
    n=$(for r in 0 1 2 3 4 5 6 7; do h5table --csv -s $r frame-b0-00000012.h5; done | awk -F , '$1 + 0 > 0 { n++; m += !($3 > 0) || $4 != 0 } END { printf "%.6g", m / n }')
    [ "$(sed -n 3p a | cut -f 9)" = "$n" ]
    awk -v n="$n" 'BEGIN { exit !(n > 0.03) }'
    [ "$(sed -n 3p a | cut -f 7)" = nan ]
    fails_with 2 '*--table*--kind night*' specplot --table frame-b0-00000012.h5
    fails_with 3 '*rv.h5*is no frame*' specplot -k night --table "$d/rv.h5"
    # of a pipe that holds several, too
    specplot -k night --table "$d"/frame-{b,r}0.h5 >named
    cat "$d"/frame-{b,r}0.h5 | specplot -k night --table | diff named -
    # stars of both, those without a warning; the same spectra: no difference
    n=$(h5table --csv -t /rvfit/table -c RVS_WARN "$d/ccf.h5" | grep -cx 0)
    specplot --script -k repeats "$d/rv.h5" "$d/ccf.h5" >b.gp
    cat "$d"/{rv,ccf}.h5 | specplot --script -k repeats | diff b.gp -
    block p0 b.gp | awk '{ n++; bad += $2 != 0 } END { print n, bad; exit !(n == wanted && n > 0 && bad == 0) }' wanted="$n" -
    fails_with 1 '*twice*' specplot --script -k repeats "$d/rv.h5"
}

# median, 1.4826 MAD and number of the first column
spread() {
    sort -g | awk '{ v[NR] = $1 } END { for (i = 1; i <= NR; i++) print v[i], NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }' |
        awk '{ print ($1 > $2 ? $1 - $2 : $2 - $1), $2 }' | sort -g |
        awk '{ v[NR] = $1 } END { printf "%.9g\n%.9g\n%d\n", $2, 1.4826 * (NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2), NR }'
}

# row NAME TABLE: median, scatter and number of bins of a quantity
row() { awk -F '\t' -v name="$1" '$2 == name { printf "%s\n%s\n%s\n", $4, $6, $3 }' "$2"; }

@test "compare: medians, scatters and masked bins are those of the two files" {
    local d=$BATS_FILE_TMPDIR/data k
    # the same light with other noise, longer exposure, other errors; some bins masked in one, some in the other
    specx-sim -q --arm r --fibers 8 --sky-fibers 2 --no-sky --wavelength 6400,6600 --teff 5200:5800 --logg 3.7:4.3 --alpha 0 \
        --feh -0.8:-0.2 --vsini 0:10 --snr 40:60 --noise-seed 7 --ivar data -o other.h5
    specx-extract -q -w 6400,6600,0.8 -o b.h5 other.h5
    h5edit b.h5 scale /frame/flux 1.02 scale /frame/ivar 0.9 scale /frame/resolution 1.03 \
        range /frame/mask 10 40 1 range /frame/ivar 300 305 0
    cp "$d/frame-r0.h5" a.h5
    h5edit a.h5 range /frame/mask 30 60 4
    specplot -k compare --table a.h5 b.h5 >table
    cat table
    for k in flux ivar mask; do
        values a.h5 /frame/$k >a.$k
        values b.h5 /frame/$k >b.$k
    done
    # difference, S/N, ratio of ivar, and which file lacks the bin
    paste -d ' ' a.flux b.flux a.ivar b.ivar a.mask b.mask | awk '
        { a = $3 > 0 && $5 == 0; b = $4 > 0 && $6 == 0
          if (a && b) printf "%.9g %.9g %.9g\n", ($1 - $2) * sqrt($3), ($1 + $2) / 2 * sqrt($3), $3 / $4 - 1
          lacks[a + 2 * b]++ }
        END { print lacks[0] + 0, lacks[2] + 0, lacks[1] + 0 >"lacks" }' >bins
    for k in flux flux_below_1 flux_1_to_3 flux_30_to_100 ivar; do
        awk -v k=$k 'BEGIN { lo = k == "flux_1_to_3" ? 1 : k == "flux_30_to_100" ? 30 : -1e9; hi = k == "flux_below_1" ? 1 : k == "flux_1_to_3" ? 3 : k == "flux_30_to_100" ? 100 : 1e9 }
            $2 >= lo && $2 < hi { print k == "ivar" ? $3 : $1 }' bins | spread >expected
        row $k table >measured
        echo $k
        near 2e-4 expected measured
    done
    diff <(for k in both first second; do row masked_$k table | tail -n 1; done | tr '\n' ' ') <(tr '\n' ' ' <lacks)
    read -r k _ <lacks
    [ "$k" -gt 5 ]
    # independent noise of the same S/N: the flux is 2 % higher
    awk -F '\t' '$2 == "flux" { exit !($6 > 1.2 && $6 < 1.6 && $4 < 0) }' table
    # errors are those of a normal distribution
    awk -F '\t' '$2 == "flux" { n = sqrt($3); exit !(($5 / ($6 / n) - 1.2533) ^ 2 < 1e-4 && ($7 / ($6 / n) - 1.1664) ^ 2 < 1e-4) }' table
    # a column of R sums to 1: half of the 3 %
    awk -F '\t' '$2 == "resolution" { exit !($4 > 0.0145 && $4 < 0.0155) }' table
    # one bin beside it: half of R is elsewhere
    cp a.h5 c.h5
    h5edit c.h5 scale /frame/resolution 0
    specplot -k compare --table a.h5 c.h5 | awk -F '\t' '$2 == "resolution" { exit !($4 > 0.495 && $4 < 0.505) }'
    # a file and itself
    specplot -k compare --table a.h5 a.h5 | awk -F '\t' '$2 == "flux" { exit !($3 > 1900 && $4 == 0 && $6 == 0 && $8 == 0) }'
}

@test "compare: rows by target, bins by wavelength, also barycentric ones of DESI" {
    local d=$BATS_FILE_TMPDIR/data
    # three fibres and part of the wavelengths: what both have
    specx-extract -q -s 2:5 -w 6480,6560,0.8 -o part.h5 "$d/image-r0.h5"
    specplot -k compare --table part.h5 "$d/frame-r0.h5" | awk -F '\t' '$2 == "flux" { exit !($3 == 303 && $6 < 1e-3 && $8 < 0.2) }'
    # a grid on the ground, and its barycentric wavelengths
    specx-extract -q -w 6400.64006,6559.35594,0.80008 -o ours.h5 "$d/image-r0.h5"
    cp ours.h5 theirs.h5
    h5edit theirs.h5 scale /frame/wavelength 0.9999 attr /frame/wavelength frame barycentric \
        strings /frame/header "$(printf '%-80s' 'HELIOCOR=               0.9999')"
    specplot -k compare --table ours.h5 theirs.h5 | awk -F '\t' '$2 == "flux" { exit !($3 > 1500 && $6 == 0) }'
    specplot -k compare --table theirs.h5 ours.h5 | awk -F '\t' '$2 == "flux" { exit !($3 > 1500 && $6 == 0) }'
    # other bins: the message has those that are needed
    fails_with 3 '*has other bins than theirs.h5: extract with --wavelength 6400.64*,0.8000*' \
        specplot -k compare --table "$d/frame-r0.h5" theirs.h5
    specx-extract -q -w "$(specplot -k compare --table "$d/frame-r0.h5" theirs.h5 2>&1 | sed 's/.*--wavelength //')" \
        -o again.h5 "$d/image-r0.h5"
    specplot -k compare --table again.h5 theirs.h5 | awk -F '\t' '$2 == "flux" { exit !($3 > 1500 && $6 < 1e-3) }'
    fails_with 3 '*frame-b0.h5 and *frame-r0.h5 have no arm in common*' specplot -k compare --table "$d/frame-b0.h5" "$d/frame-r0.h5"
    fails_with 2 '*two files with spectra, not 1*' specplot -k compare --table ours.h5 "$d/image-r0.h5"
    cp ours.h5 unit.h5
    h5edit unit.h5 attr /frame/flux units 'electron'
    fails_with 3 "*flux of arm r is in*'electron'*" specplot -k compare --table ours.h5 unit.h5
    fails_with 3 '*frame-r0.h5 and *lamp-r0-1.h5 have no target in common*' \
        specplot -k compare --table "$d/frame-r0.h5" "$d/lamp-r0-1.h5"
}

@test "the first failure is one line: status and remedy" {
    local d=$BATS_FILE_TMPDIR/data
    fails_with 2 '*p.gif*.png, .svg or .pdf*' specplot -o p.gif "$d/frame-r0.h5"
    fails_with 2 '*--spectrum*0 to 7, not 8*' specplot -s 8 -o p.png "$d/frame-r0.h5"
    fails_with 2 '*exclude each other*' specplot -s 1 --targetid 2 -o p.png "$d/frame-r0.h5"
    fails_with 2 '*--wavelength*no spectrum has light*' specplot -w 1,2 -o p.png "$d/frame-r0.h5"
    fails_with 2 '*--size*' specplot --size 10 -o p.png "$d/frame-r0.h5"
    fails_with 3 '*no spectrum has TARGETID 5*' specplot --targetid 5 -o p.png "$d/frame-r0.h5"
    fails_with 3 '*no picture is known*' specplot -o p.png "$d/array.h5"
    fails_with 3 '*has no /ccf/gain*rvs-fit --ccf*' specplot -k ccf -o p.png "$d/rv.h5"
    fails_with 3 '*has no /flat/flat*specx-flat*' specplot -k flat -o p.png "$d/frame-r0.h5"
    fails_with 3 '*has no /rvfit/table*rvs-fit*' specplot -k fit -o p.png "$d/frame-r0.h5"
}
