#!/usr/bin/env bash
# shift.sh ARM SEEDS [SIM-OPTION...]: specx-shift against the truth of simulated exposures of 80 stars and 20 sky fibres.
# ARM: z or r. SEEDS: FIRST:LAST, LAST included. SIM-OPTION: --shift 0.06,0.06,0.01,0.01 without. Lines:
#
#     traces: x, y, wx, wy: rms and mean of what is left, pixels (widths: relative); median, 1.4826 MAD and rms of its pulls
#     spots: with --spots, the same of exposures without noise, but for pulls. Spots of the PSF that are skew do not fit
#         symmetric ones where their traces say, and the place depends on how pixels are weighted, 0.002 to 0.009 pixel
#         in z: traces are then compared with those of the exposure without noise
#     zero point: seed, what it is off, Angstrom, and its error: the mean of the sky fibres, whose own shifts are relative
#         to it; stars between them may differ in the mean, by +0.0023 Angstrom with --shift wave in r
#     SKY, PSF: velocities of the stars, measured with the PSF that is wrong, shifted or right, or with the wrong one and
#         corrected by c delta/lambda of specx-sky, in the middle of the range, with its error: median of v - truth and
#         mean of v - v(right), km/s, both with the statistical error of a mean; median and 1.4826 MAD of pulls with the
#         errors 1.25/sqrt(n) and 1.17/sqrt(n) that they have for Gaussian pulls
#
# TRACES=1: the first two alone. What fibres have in common differs from seed to seed: 45 of them tell rms of pulls of y to
# some 0.1.
#
# Exposures without a sky have no lines: they use the PSF that the exposure with the sky gave, as spectra of one night do.
set -euo pipefail
arm=$1 seeds=$2
shift 2
sim=("$@")
[ ${#sim[@]} -gt 0 ] || sim=(--shift "0.06,0.06,0.01,0.01")
range=$([ "$arm" = z ] && echo 8250,8950 || echo 6300,7000)
setup=$arm:$(echo "$range" | awk -F, '{ print $1 - 20 ":" $2 + 20 }'):0.4:FWHM=1.1774
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# values FILE PATH: one number a line.
values() { h5dump -A 0 -y -w 1 -m %.12g -d "$2" "$1" | awk '/[}]/ { on = 0 } on { sub(",", ""); print $1 } /DATA [{]/ { on = 1 }'; }

figure() { h5dump -m %.12g -a "$2" "$1" | awk '/\(0\)/ { print $2 }'; }

column() { h5table --csv -t "$1" -c "$2" "$3" | tail -n +2; }

# robust: median and 1.4826 MAD of numbers on standard input, and how many they are.
robust() {
    sort -g | awk '{ x[NR] = $1 } END { m = (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2
        for (i = 1; i <= NR; i++) print x[i] - m < 0 ? m - x[i] : x[i] - m, m }' | sort -g |
        awk '{ d[NR] = $1; m = $2 } END { print m, 1.4826 * (d[int((NR + 1) / 2)] + d[int(NR / 2) + 1]) / 2, NR }'
}

# left FOUND TRUTH: what is left of the shifts, and its errors, a line each "name left error".
left() {
    local pair
    for pair in dx:x dy:y width_x:wx width_y:wy; do
        {
            values "$2" /truth/shift/wavelength | sed 's/^/w /'
            values "$1" /shift/wavelength | sed 's/^/a /'
            values "$2" "/truth/shift/${pair#*:}" | sed 's/^/t /'
            paste -d' ' <(values "$1" "/shift/${pair%:*}") <(values "$1" "/shift/${pair%:*}_error") | sed 's/^/f /'
        } | awk -v name="${pair#*:}" '
            $1 == "w" { w[nw++] = $2 }
            $1 == "a" { at[na++] = $2 }
            $1 == "t" { t[nt++] = $2 }
            $1 == "f" {
                i = int(n / na); a = at[n++ % na]
                for (k = 0; k < nw - 2 && w[k + 1] < a; k++);
                u = (a - w[k]) / (w[k + 1] - w[k])
                print name, $2 - (1 - u) * t[i * nw + k] - u * t[i * nw + k + 1], $3
            }'
    done
}

# from FOUND EXACT: the same, against another measurement.
from() {
    local pair
    for pair in dx:x dy:y width_x:wx width_y:wy; do
        paste -d' ' <(values "$1" "/shift/${pair%:*}") <(values "$2" "/shift/${pair%:*}") \
            <(values "$1" "/shift/${pair%:*}_error") | awk -v name="${pair#*:}" '{ print name, $1 - $2, $3 }'
    done
}

[ -n "${TRACES:-}" ] || {
    specx-sim -q --library stars --wavelength 6000,9200 --axis teff=4500,5000,5500,6000,6500 --axis logg=3,3.5,4,4.5,5 \
        --axis feh=-1.5,-1,-0.5,0 --axis alpha=0,0.4
    fits2h5 -q --vacuum stars -o stars.h5
    rvs-template -q --library-resolution none --setup "$setup" -o templates.h5 stars.h5
}
for ((seed = ${seeds%:*}; seed <= ${seeds#*:}; seed++)); do
    camera=(-q -f --arm "$arm" --seed "$seed" --fibers 100 --sky-fibers 20 --wavelength "$range" --teff 4800:6200 --logg
        3.2:4.8 --feh -1.3:-0.1 --alpha 0:0.4 --velocity -300:300 --snr 20:80 "${sim[@]}")
    specx-sim "${camera[@]}" --truth truth.h5 --psf-output wrong.fits -o image.fits
    fits2h5 -q -f wrong.fits -o wrong.h5
    fits2h5 -q -f image.fits -o sky.h5
    specx-shift -q -f --psf-only -o shifted.h5 sky.h5 wrong.h5
    left shifted.h5 truth.h5 >residuals
    if [[ " ${sim[*]}" == *" --spots "* ]]; then
        specx-sim "${camera[@]}" --no-noise -o image.fits
        fits2h5 -q -f image.fits -o exact.h5
        specx-shift -q -f --psf-only -o exact-psf.h5 exact.h5 wrong.h5
        left exact-psf.h5 truth.h5 >>spots
        from shifted.h5 exact-psf.h5 >>traces
    else
        cat residuals >>traces
    fi
    # the mean over sky fibres is the zero point's error, by the slope of the traces, a series of Legendre polynomials
    {
        column /truth/table OBJTYPE truth.h5
        values shifted.h5 /shift/wavelength | sed 's/^/w /'
        values wrong.h5 /psf/ytrace | sed 's/^/c /'
        grep '^y ' residuals
    } | awk -v low="$(figure wrong.h5 /psf/ytrace/wavemin)" -v high="$(figure wrong.h5 /psf/ytrace/wavemax)" '
        $1 == "w" { at[na++] = (2 * $2 - low - high) / (high - low); next }
        $1 == "c" { c[nc++] = $2; next }
        $1 == "y" { y[n++] = $2; next }
        { sky[nf++] = $1 == "SKY" }
        function rows(f, u,    p, q, d, e, k, sum, terms) {
            terms = nc / nf; p = u; q = 1; d = 1; e = 0; sum = c[f * terms + 1]
            for (k = 2; k < terms; k++) {
                next_d = e + (2 * k - 1) * p; e = d; d = next_d
                next_p = ((2 * k - 1) * u * p - (k - 1) * q) / k; q = p; p = next_p
                sum += c[f * terms + k] * d
            }
            return sum * 2 / (high - low)
        }
        END {
            for (i = 0; i < n; i++) if (sky[int(i / na)]) { m++; s += y[i] / rows(int(i / na), at[i % na]) }
            print -s / m
        }' |
        while read -r off; do
            printf 'zero point: seed %d %+.4f +- %.4f, %d lines\n' "$seed" "$off" \
                "$(figure shifted.h5 /shift/zero_point_error)" "$(figure shifted.h5 /shift/lines)"
        done >>zero
    [ -z "${TRACES:-}" ] || continue
    specx-sim "${camera[@]}" --no-sky -o image.fits
    fits2h5 -q -f image.fits -o none.h5
    column /truth/table OBJTYPE,VRAD truth.h5 | awk -F, '$1 == "TGT" { print $2 }' >put
    for light in none sky; do
        for psf in right shifted wrong; do
            file=$([ $psf = right ] && echo truth.h5 || echo $psf.h5)
            specx-extract -q -f --wavelength "$range,0.8" -o frame.h5 $light.h5 "$file"
            if [ $light = sky ]; then
                specx-sky -q -f -o sframe.h5 frame.h5
                mv sframe.h5 frame.h5
                column /sky/table ROLE,DELTA,DELTA_ERR frame.h5 | awk -F, '$1 == "TARGET" { print $2, $3 }' >"delta"
            fi
            rvs-fit -q -f -t templates.h5 --resolution-matrix --no-model -o rv.h5 frame.h5
            column /rvfit/table OBJTYPE,VRAD,VRAD_ERR rv.h5 | awk -F, '$1 == "TGT" { print $2, $3 }' >$psf
            paste -d' ' $psf put right >>"$light-$psf"
        done
        [ $light = none ] || paste -d' ' wrong put right "delta" | awk -v range="$range" '
            BEGIN { split(range, w, ","); c = 2 * 299792.458 / (w[1] + w[2]) }
            { print $1 + c * $6, sqrt($2 * $2 + c * c * $7 * $7), $3, $4, $5 }' >>sky-corrected
    done
done
for q in x y wx wy; do
    awk -v q=$q '$1 == q && $3 > 0 { n++; s += $2; r += $2 * $2 } END { printf "traces: %s rms %.4f mean %+.4f", q, sqrt(r / n), s / n }' traces
    awk -v q=$q '$1 == q && $3 > 0 { print $2 / $3 }' traces | robust | awk '{ printf ", pulls %+.2f %.2f", $1, $2 }'
    awk -v q=$q '$1 == q && $3 > 0 { n++; p += ($2 / $3)^2 } END { printf " %.2f\n", sqrt(p / n) }' traces
done
[ ! -e spots ] || for q in x y wx wy; do
    awk -v q=$q '$1 == q && $3 > 0 { n++; s += $2; r += $2 * $2 } END { printf "spots: %s rms %.4f mean %+.4f\n", q, sqrt(r / n), s / n }' spots
done
cat zero
[ -z "${TRACES:-}" ] || exit 0
for light in none sky; do
    for psf in wrong corrected shifted right; do
        [ -e $light-$psf ] || continue
        printf '%s, %s: ' $light $psf
        awk '{ print $1 - $3 }' $light-$psf | robust | awk '{ printf "%d stars, off %+.3f", $3, $1 }'
        awk '{ w += 1 / $5 ^ 2; s += $1 - $4; n++ } END { printf " km/s, from right %+.3f +- %.3f km/s", s / n, 1 / sqrt(w) }' $light-$psf
        awk '{ print ($1 - $3) / $2 }' $light-$psf | robust |
            awk '{ printf ", pulls %+.2f +- %.2f, %.2f +- %.2f\n", $1, 1.25 / sqrt($3), $2, 1.17 / sqrt($3) }'
    done
done
