# shellcheck shell=bash disable=SC2154,SC2034,SC2054
# Provides the tables of the sky: chi squared by model, its grid, velocities of stars. truth.sh sources this file.

# Sky: a camera of 250 (z) or 125 (r) fibres, whose traces, widths and throughputs differ from what the PSF and the flat
# say; 75 or 60 fibres see the sky, 25 or 20 of them are held out. Makes flat.h5, and frames and truth of sky-*.h5.
sky_frames() {
    local arm=$1 n=$2 sky=$3 name
    local camera=(-q -f --arm "$arm" --seed "$seed" --fibers "$n" --cosmics 0 --bad-columns 0)
    local exposure=("${camera[@]}" --sky-fibers "$sky" --snr 3:30)
    for name in true-flat flat; do
        # shellcheck disable=SC2046
        specx-sim "${camera[@]}" --flat --throughput 0.1 --shift wave $([ $name = flat ] && echo --noise-seed $((seed + 1)) || echo --no-noise) -o image.h5
        specx-extract -q -f -o flat-frame.h5 image.h5
        specx-flat -q -f -o "$name.h5" flat-frame.h5
    done
    specx-sim "${exposure[@]}" -o image.h5
    specx-extract -q -f -o sky-ideal.h5 image.h5
    specx-sim "${exposure[@]}" --throughput 0.1 --fiber-scatter 0.02 --shift wave --truth sky-truth.h5 -o image.h5
    specx-extract -q -f -o sky-wrong.h5 image.h5
    specx-shift -q -f --psf-only -o sky-psf.h5 image.h5
    h5edit image.h5 delete /psf
    for name in psf truth; do
        specx-extract -q -f -o "frame-$name.h5" image.h5 "sky-$name.h5"
    done
    mv frame-psf.h5 sky-shifted.h5
    mv frame-truth.h5 sky-right.h5
    rm flat-frame.h5 image.h5
}

# chi2 FILE [heldout_|loo_]: off lines, on lines, brightest 1 % of bins
chi2() {
    local q line=()
    for q in off on top; do line+=("$(attribute "$1" "/sky/chi2_${2-heldout_}$q" %.3f)"); done
    echo "${line[*]}"
}

# sky_row NAME FRAME "OPTIONS OF specx-sky" PROTOTYPE DESISPEC: subtracts the sky, gives sky.h5
sky_row() {
    # The options are words.
    # shellcheck disable=SC2086
    specx-sky -q -f --hold-out "$held" $3 -o sky.h5 "sky-$2.h5"
    row "$1" "$(chi2 sky.h5)" "$4" "$5"
}

# sky_limits OFF ON TOP: of the last row, 1 within OFF, at most ON and TOP
sky_limits() {
    local off on top
    read -r off on top <<<"$(chi2 sky.h5)"
    bad "$off < 1 - $1 || $off > 1 + $1 || $on > $2 || $top > $3"
}

# quantity_row FILE ROLE NAME PROTOTYPE: median errors of t, delta and the slope of delta (Angstrom) of fibres of a role
quantity_row() {
    row "$3" "$(paste -d' ' <(column ROLE "$1" /sky/table) <(values "$1" /sky/parameter_covariance | awk '
            { q = (NR - 1) % 16; if (q == 0 || q == 5 || q == 10) e = e sqrt($1) " "; if (q == 15) { print e; e = "" } }') |
        awk -v role="$2" '$1 == role { print $2, $3, $4 }' | awk '
            { for (q = 1; q <= 3; q++) v[q, NR] = $q }
            END { for (q = 1; q <= 3; q++) { # the median: as many are below as above
                for (i = 1; i <= NR; i++) { n = 0; for (j = 1; j <= NR; j++) n += v[q, j] < v[q, i] || (v[q, j] == v[q, i] && j < i)
                    if (n == int(NR / 2)) printf "%.4f ", v[q, i] } } }')" "$4" -
}

# alone_row FILE ROLE NAME PROTOTYPE: median errors of t, delta and slope by bins of the fibre alone, of lines of sky_truth
alone_row() {
    local q errors=()
    for q in t d d1; do
        errors+=("$(awk -v q=$q -v role="$2" '$1 == "alone" && $2 == q && $3 == role { print $4 }' "$1" | robust | awk '{ printf "%.4f", $1 }')")
    done
    row "$3" "${errors[*]}" "$4" -
}

# delta_row FILE NAME PROTOTYPE: delta before the prior: rms of what it is off, rms of pulls; of targets, robust scatter
delta_row() {
    row "$2" "$(awk '$1 == "alone" && $2 == "d" && $3 == "SKY" { n++; s += $5 * $5; p += ($5 / $4)^2 }
        END { printf "%.4f, %.2f", sqrt(s / n), sqrt(p / n) }' "$1"); $(awk '$1 == "alone" && $2 == "d" && $3 == "TARGET" { print $5 / $4 }' "$1" |
        robust | awk '{ printf "%.2f", $2 }')" "$3" -
    bad "$(awk '$1 == "alone" && $2 == "d" && $3 == "SKY" { n++; p += ($5 / $4)^2 } END { print (p > 1.69 * n) }' "$1")"
}

# A held-out fibre before and after, in the frame and what specx-sky left of it.
sky_picture() {
    local fibre
    command -v gnuplot >/dev/null || return 0
    fibre=$(h5table --csv -t /sky/table -c ROLE "$2" | awk '$1 == "HELDOUT" { print NR - 2; exit }')
    h5table --csv --spectrum "$fibre" "$1" | tail -n +2 >before.txt
    h5table --csv --spectrum "$fibre" "$2" | tail -n +2 >after.txt
    gnuplot <<END
set terminal pngcairo size 1200,700
set output '$3.png'
set datafile separator ','
set multiplot layout 2,1 title '$3: a sky fibre that is held out, traces that have moved'
set ylabel 'electrons / Å'
plot 'before.txt' using 1:2 with steps lc rgb '#404040' title 'before'
set xlabel 'wavelength (Å)'
set ylabel 'flux √ivar'
set yrange [-6:6]
plot 'after.txt' using 1:(\$2 * sqrt(\$3)) with steps lc rgb '#2050a0' title 'after, in units of its error'
unset multiplot
END
    rm before.txt after.txt
}

model_z_case() {
    local held=25 n common='--scale none --terms 1,0,0'
    printf '\n== model-z: chi squared of held-out sky fibres of arm z: off lines, on lines, brightest 1 %% of bins\n'
    printf '   250 fibres, 50 sky fibres in the fit; statistical errors 0.007, 0.024, 0.05 (peers: of their own exposures)\n'
    sky_frames z 250 75
    row '' specpipe prototype desispec
    sky_row 'wrong PSF, common sky only' wrong "--flat flat.h5 $common" '1.031 1.551 1.912' '1.031 1.551 1.912'
    sky_row '  + t' wrong '--flat flat.h5 --terms 1,0,0' '0.992 1.249 1.266' '1.031 1.303 1.325 (lines)'
    sky_row '  + t, delta' wrong '--flat flat.h5 --terms 1,2,0' '0.992 0.999 0.930' '1.031 0.969 1.119 (own errors)'
    sky_row '  + t, delta, kappa' wrong '--flat flat.h5' '0.992 0.994 0.932' '1.031 0.862 0.914 (own errors)'
    sky_limits 0.03 1.1 1.15
    quantity_row sky.h5 TARGET '     errors of t, delta, slope: targets' '0.0041 0.0031 0.0017'
    quantity_row sky.h5 SKY '     sky fibres' -
    sky_truth sky.h5 sky-truth.h5 sky-truth.h5 >alone.txt
    alone_row alone.txt TARGET '     by bins of the fibre alone: targets' '0.0048 0.0038 0.0077'
    alone_row alone.txt SKY '     sky fibres' '0.0016 0.0032 0.0064'
    delta_row alone.txt '     delta alone, rms; pulls: sky; targets' '0.0024 to 0.0038, 0.77 to 0.89; 1.02'
    row '     of the fit, as fitted' "$(chi2 sky.h5 '')" '0.984 1.003 1.052' -
    row '     of the fit, each left out' "$(chi2 sky.h5 loo_)" '1.004 1.023 1.073' -
    sky_picture sky-wrong.h5 sky.h5 model-z
    sky_row '  the same with a flat without noise' wrong '--flat true-flat.h5' 'within 0.002, top 0.007' -
    sky_row 'extracted again with the shifted PSF, + t' shifted '--flat flat.h5 --terms 1,0,0' '0.992 0.991 0.914' -
    sky_limits 0.03 1.1 1.15
    sky_row 'right PSF, + t (the best possible)' right '--flat flat.h5 --terms 1,0,0' '0.992 0.995 0.917' -
    sky_row 'ideal frame, common sky only' ideal "$common" '0.995 1.003 0.963' -
    for n in '5 0.996 1.05' '10 0.994 1.02' '20 0.989 1.00' '50 0.992 1.00'; do
        read -r n off on <<<"$n"
        held=$((75 - n))
        sky_row "$n sky fibres in the fit" shifted '--flat flat.h5' "$off $on" -
        sky_limits 0.05 1.15 1.25
        [ "$n" != 5 ] || row '  without the variance of the sky' "$(sky_truth sky.h5 |
            awk '$1 == "bare" { printf "%.3f ", $4 / $3 }')" '1.19 1.27' -
    done
    shift_table
}

model_r_case() {
    local held=20
    printf '\n== model-r: the same of arm r, 125 fibres, 40 sky fibres in the fit; errors 0.01, 0.06, 0.05\n'
    sky_frames r 125 60
    row '' specpipe prototype desispec
    sky_row 'wrong PSF, common sky only' wrong '--flat flat.h5 --scale none --terms 1,0,0' '1.037 2.59 2.15' '1.037 1.70 1.58 (lines)'
    sky_row '  + t, delta, kappa' wrong '--flat flat.h5' '1.007 0.92 0.97' '1.037 0.84 0.90 (own errors)'
    sky_limits 0.03 1.15 1.15
    sky_row 'extracted again with the shifted PSF, + t' shifted '--flat flat.h5 --terms 1,0,0' - -
    sky_limits 0.03 1.15 1.15
    held=55
    sky_row '5 sky fibres in the fit' shifted '--flat flat.h5' - -
    sky_limits 0.03 1.15 1.25
}

# Smaller exposures (science/sky.sh): quantities of the fibres, and skies that vary over the focal plane.
sky_case() {
    local name options prototype line
    printf '\n== sky: arm z, 75 fibres, 600 Angstrom (science/sky.sh z %s): chi squared; scatters of pulls of t, delta: sky, targets\n' "$seeds"
    row '' specpipe prototype ''
    while IFS='|' read -r name options prototype; do
        # The options are words.
        # shellcheck disable=SC2086
        line=$("$here/science/sky.sh" z "$seeds" $options)
        row "$name" "$(sed -E 's/.*: off ([^ ]+) .* on ([^ ]+) .* top ([^ ]+) .*; t [^ ]+ ([^ ]+), [^ ]+ ([^ ]+); d [^ ]+ ([^ ]+), [^ ]+ ([^ ;]+).*/\1 \2 \3; \4 \5, \6 \7/
            s/.*: off ([^ ]+) .* on ([^ ]+) .* top ([^ ]+) .*/\1 \2 \3/' <<<"$line")" "$prototype" ''
        [[ $options == *gradient* ]] || row '     medians of these pulls' "$(sed -nE \
            's/.*; t ([^ ]+) [^ ]+, ([^ ]+) .*; d ([^ ]+) [^ ]+, ([^ ]+) .*/\1 \2, \3 \4/p' <<<"$line")" '-0.1 (t), -0.3: targets' ''
    done <<'END'
right PSF||0.995 1.003 0.963
traces moved, throughputs not known|--shift wave --fiber-scatter 0.02|0.992 0.994 0.932; 1.00, 1.02
  a gradient of 5 %|--shift wave --fiber-scatter 0.02 --sky-gradient 0.05,0|1.074
  the same, --gradient x|--shift wave --fiber-scatter 0.02 --sky-gradient 0.05,0 -- --gradient x|0.998
  no gradient, --gradient x|--shift wave --fiber-scatter 0.02 -- --gradient x|0.998
spots of a Moffat profile|--spots moffat|-
2 % of the light in wings|--tails 0.02|-
END
    model_errors
}

# Errors of the model over twelve draws of noise, in units of what the product says.
model_errors() {
    local camera=(-q -f --arm z --seed "$seed" --fibers 40 --cosmics 0 --bad-columns 0 --wavelength 8250,8650) n
    specx-sim "${camera[@]}" --sky-fibers 40 --no-noise -o image.h5
    specx-extract -q -f -o frame.h5 image.h5
    h5edit frame.h5 scale /frame/ivar 400 # errors so small that no prior matters
    specx-sky -q -f --reject 0 -o exact.h5 frame.h5
    for n in 1 2 3 4 5 6 7 8 9 10 11 12; do
        specx-sim "${camera[@]}" --sky-fibers 24 --snr 3:30 --noise-seed $((100 * seed + n)) --truth truth.h5 -o image.h5
        specx-extract -q -f -o frame.h5 image.h5
        specx-sky -q -f --hold-out 8 -o sky.h5 frame.h5
        sky_truth sky.h5 image.h5 truth.h5 exact.h5
    done | awk '$1 == "model" { n[$2] += $4; s[$2] += $5; n[$2, $3] += $4; s[$2, $3] += $5 }
        END {
            split("off on", class, " ")
            split("SKY HELDOUT TARGET", role, " ")
            for (c = 1; c <= 2; c++)
                for (r = 1; r <= 3; r++)
                    printf "%.3f%s", sqrt(s[class[c], role[r]] / n[class[c], role[r]]), r < 3 ? " " : c < 2 ? "; " : "\n"
        }' >errors.txt
    row 'errors of the model, 12 draws of noise: off; on' "$(cat errors.txt)" '1.000; 0.987' ''
    row '  over what it says: fitted, held out, targets' '' '' ''
    bad "$(tr -d ';' <errors.txt | awk '{ for (i = 1; i <= 6; i++) b = b || $i > (i < 4 ? 1.1 : 1.2) || $i < (i < 4 ? 0.9 : 0.8); print b + 0 }')"
}

# moved_scale BEFORE AFTER: rms and largest change of T of targets, and the median of its error
moved_scale() {
    paste -d' ' <(column ROLE,T,T_ERR "$1" /sky/table) <(column T "$2" /sky/table) | awk '
        $1 == "TARGET" { d = $4 - $2; n++; s += d * d; if (d < 0) d = -d; if (d > most) most = d; e += $3 }
        END { printf "%.4f %.4f %.4f", sqrt(s / n), most, e / n }'
}

# What is not in the model: a line of the stars on a line of the sky, and outliers of sky fibres.
spoilt_case() {
    local held=15 n
    printf '\n== spoilt: arm z, 75 fibres, 600 Angstrom, traces moved, throughputs not known\n'
    specx-sim -q -f --arm z --seed "$seed" --fibers 75 --sky-fibers 45 --snr 3:30 --cosmics 0 --bad-columns 0 --wavelength 8250,8850 \
        --shift wave --fiber-scatter 0.02 -o image.h5
    specx-extract -q -f --precision double -o sky-clean.h5 image.h5
    specx-sky -q -f --hold-out $held -o clean.h5 sky-clean.h5
    column ROLE clean.h5 /sky/table >roles.txt
    values sky-clean.h5 /frame/flux >flux.txt
    n=$(($(wc -l <flux.txt) / 75))
    row '' specpipe prototype ''
    # three times the brightest line of the sky, 1.1 bins wide (sigma)
    values clean.h5 /sky/model | awk -v bins="$n" '
        FILENAME == ARGV[1] { target[nrole++] = $1 == "TARGET"; next }
        FILENAME == ARGV[2] { flux[nflux++] = $1; next }
        FNR <= bins && $1 > most { most = $1; at = FNR - 1 }
        END { for (i = 0; i < nrole; i++) for (k = at - 4; k <= at + 4; k++) if (target[i])
            printf "set /frame/flux %d %.9g\n", i * bins + k, flux[i * bins + k] + 3 * most * exp(-0.5 * ((k - at) / 1.1)^2) }' \
        roles.txt flux.txt - >edits.txt
    cp sky-clean.h5 sky-line.h5
    xargs h5edit sky-line.h5 <edits.txt
    specx-sky -q -f --hold-out $held -o line.h5 sky-line.h5
    row 'a line of the stars: change of t, rms, most' "$(moved_scale clean.h5 line.h5) (error)" '0.0011 0.006 0.0041' ''
    bad "$(moved_scale clean.h5 line.h5 | awk '{ print $1 " > " $3 " || " $2 " > 3 * " $3 }')"
    row 'held-out fibres' "$(chi2 clean.h5)" '0.992 0.994 0.932' ''
    # 0.4 % of the bins of fitted fibres, 8 to 100 errors
    values sky-clean.h5 /frame/ivar | awk '
        FILENAME == ARGV[1] { sky[nrole++] = $1 == "SKY"; next }
        FILENAME == ARGV[2] { flux[nflux++] = $1; next }
        { i = int((FNR - 1) * nrole / nflux); if (sky[i] && $1 > 0 && rand() < 0.004)
            printf "set /frame/flux %d %.9g\n", FNR - 1, flux[FNR - 1] + (8 + 92 * rand()) / sqrt($1) }' \
        roles.txt flux.txt - >edits.txt
    cp sky-clean.h5 sky-line.h5
    xargs h5edit sky-line.h5 <edits.txt
    sky_row "$(wc -l <edits.txt) outliers of 8 to 100 errors" line '' '0.9925 0.997 0.931' ''
    sky_limits 0.03 1.1 1.2
    row '  bins left out' "$(column NREJECTED sky.h5 /sky/table | awk '{ n += $1 } END { print n }')" '628 of 626' ''
    # the brightest line of r lies between bins, and is another one beside stars
    specx-sim -q -f --arm r --seed "$seed" --fibers 60 --sky-fibers 30 --mag 16:17 --cosmics 0 --bad-columns 0 --no-noise \
        --wavelength 6150,6450 -o image.h5
    specx-extract -q -f -w 6160.3,6440.3,1 -o frame.h5 image.h5
    specx-sky -q -f -o sky.h5 frame.h5
    specx-extract -q -f -w 6160.3,6440.3,1 --sky-lines oi -o frame.h5 image.h5
    specx-sky -q -f -o placed.h5 frame.h5
    row 'kappa of bright stars at 6302 A, bins of 1 A' "$(kappa_pull sky.h5); --sky-lines oi: $(kappa_pull placed.h5)" - ''
    bad "$(kappa_pull placed.h5 | awk '{ print $1 * $1 }') > 0.01"
}

# kappa_pull FILE: mean of kappa of targets, in errors
kappa_pull() {
    column ROLE,KAPPA,KAPPA_ERR "$1" /sky/table | awk '$1 == "TARGET" && $3 > 0 { s += $2 / $3; n++ } END { printf "%+.3f", s / n }'
}

# misfit FILE: rms of flux/error of held-out fibres but for 8 bins at either end: all bins, on lines, brightest 1 %; the
# largest
misfit() {
    paste -d' ' <(values "$1" /frame/flux) <(values "$1" /frame/ivar) | awk '
        FILENAME == ARGV[1] { held[nrole++] = /HELDOUT/; next }
        FILENAME == ARGV[2] { class[n++] = $1; next }
        {
            k = i % n
            fibre = (i - k) / n
            i++
            if (held[fibre + 1] && k >= 8 && k < n - 8)
                for (c = 0; c < 3; c++)
                    if (c == 0 || int(class[k] / 2 ^ c) % 2) {
                        sum[c] += $1 * $1 * $2
                        m[c]++
                        if ($1 * $1 * $2 > most) most = $1 * $1 * $2
                    }
        }
        END { for (c = 0; c < 3; c++) printf "%.3f ", sqrt(sum[c] / m[c]); printf "%.3f", sqrt(most) }' \
        <(h5table --csv -t /sky/table -c ROLE "$1") <(values "$1" /sky/class) -
}

# Misfit of frames without noise, of the sky model's grid alone. Frames that say they were topocentric have their
# barycentric velocities ignored, or found as the shifts of fibres.
barycentric_case() {
    local way text options prototype held=15
    printf '\n== barycentric: misfit of frames without noise, in errors: rms, on lines, brightest 1 %%, worst\n'
    specx-sim -q -f --arm z --seed "$seed" --fibers 75 --sky-fibers 45 --snr 3:30 --cosmics 0 --bad-columns 0 --no-noise --mjd 60310.4 \
        --wavelength 8250,8850 -o image.h5
    specx-extract -q -f --precision double -o topocentric.h5 image.h5
    specx-extract -q -f --precision double --barycentric -o barycentric.h5 image.h5
    cp barycentric.h5 ignored.h5
    h5edit ignored.h5 attr /frame/wavelength frame topocentric
    row '' specpipe prototype ''
    while IFS='|' read -r way text options prototype; do
        # The options are words.
        # shellcheck disable=SC2086
        specx-sky -q -f --hold-out $held --precision double $options -o sky.h5 $way.h5
        row "$text" "$(misfit sky.h5)" "$prototype" ''
    done <<'END'
topocentric|topocentric||0.006 0.016 0.019 0.12
ignored|barycentric, differences ignored|--terms 1,0,0|0.079 0.268 0.385
ignored|  the same, as shifts of each fibre||0.017 0.054 0.083 (known)
barycentric|barycentric, of the mean velocity||0.016 0.049 0.074
END
}

# Velocities of stars in arm z with traces that have moved (science/shift.sh).
velocities_case() {
    local name line prototype
    printf '\n== velocities: stars of arm z, traces moved (science/shift.sh z %s --shift wave): pulls, from the right PSF (km/s)\n' "$seeds"
    "$here/science/shift.sh" z "$seeds" --shift wave >velocities.txt
    row '' specpipe 'prototype (99 stars)' ''
    while IFS='|' read -r name line prototype; do
        row "$name" "$(sed -n "s/^$line: //p" velocities.txt | sed -E 's/^.*right ([^ ]+) .*pulls ([^ ]+) .*, ([^ ]+) .*/\2, \3; \1/')" \
            "$prototype" ''
    done <<'END'
no sky, right PSF|none, right|+0.01, 0.98
right PSF, sky subtracted|sky, right|+0.10, 1.08
wrong PSF, no sky|none, wrong|+0.21, 1.26
wrong PSF, sky subtracted|sky, wrong|+0.28 to 0.31, 1.22 to 1.24
  the same, corrected by c delta/lambda|sky, corrected|+0.11, 1.04
shifted PSF, sky subtracted|sky, shifted|+0.10, 1.04
END
}
