# shellcheck shell=bash disable=SC2154,SC2034,SC2054
# Provides the tables of shifts: traces and widths that have moved, and what is left of that. truth.sh sources this file.

# left PSF TRUTH: what specx-shift left of shifts that were put in, for x, y, wx, wy (pixels; relative): "NAME PUT RMS MEAN
# PULL ERROR", rms over fibres and wavelengths, which are correlated.
left() {
    local q
    for q in x:dx y:dy wx:width_x wy:width_y; do
        awk -v q="${q%:*}" '
            function values(file, a,    n, line) {
                while ((getline line <file) > 0) a[++n] = line
                return n
            }
            BEGIN {
                nw = values(ARGV[1], w); n = values(ARGV[2], s); values(ARGV[3], e); nt = values(ARGV[4], wt); values(ARGV[5], t)
                for (i = 0; i < n / nw; i++)
                    for (k = 1; k <= nw; k++) {
                        for (j = 1; j < nt - 1 && wt[j + 1] < w[k]; j++) ;
                        f = (w[k] - wt[j]) / (wt[j + 1] - wt[j])
                        true = (1 - f) * t[i * nt + j] + f * t[i * nt + j + 1]
                        d = s[i * nw + k] - true
                        sum += d; sum2 += d * d; truth2 += true * true
                        if (e[i * nw + k] > 0) { pull2 += (d / e[i * nw + k])^2; error2 += e[i * nw + k]^2; np++ }
                    }
                print q, sqrt(truth2 / n), sqrt(sum2 / n), sum / n, np ? sqrt(pull2 / np) : 0, np ? sqrt(error2 / np) : 0
            }' <(values "$1" /shift/wavelength) <(values "$1" "/shift/${q#*:}") <(values "$1" "/shift/${q#*:}_error") \
            <(values "$2" /truth/shift/wavelength) <(values "$2" "/truth/shift/${q%:*}")
    done
}

# left_row FILE NAME TEXT LIMIT PROTOTYPE DESISPEC: a line of `left`; widths in per cent
left_row() {
    local put rms mean pull error
    read -r _ put rms mean pull error <<<"$(grep "^$2 " "$1")"
    row "$3" "$(awk -v q="$2" -v put="$put" -v rms="$rms" -v mean="$mean" -v pull="$pull" -v error="$error" 'BEGIN {
        if (q ~ /w/) printf "%.2f: %.3f (%.3f), %+.3f; %.2f", 100 * put, 100 * rms, 100 * error, 100 * mean, pull
        else printf "%.3f: %.4f (%.4f), %+.4f; %.2f", put, rms, error, mean, pull }')" "$5" "$6"
    bad "$rms > $4"
}

# Traces of the frames of model_z_case.
shift_table() {
    printf '\n== shift: traces of these frames: put in: left, rms (error that is said), mean, pixel (widths: %%); rms of pulls\n'
    left sky-psf.h5 sky-truth.h5 >shift.txt
    row '' specpipe prototype desispec
    left_row shift.txt x x 0.004 '0.034: 0.0013, -0.0003' '0.0028, -0.016'
    left_row shift.txt wx 'width in x' 0.0025 '0.69: 0.105' -
    left_row shift.txt y y 0.02 '0.038: 0.0051, +0.0017' '0.0104 to 0.0150'
    left_row shift.txt wy 'width in y' 0.01 '0.72: 0.17' -
    row 'zero point +- error, Angstrom; lines; chi2/dof' "$(attribute sky-psf.h5 /shift/zero_point %.4f) +- $(
        attribute sky-psf.h5 /shift/zero_point_error %.4f); $(attribute sky-psf.h5 /shift/lines %d); $(awk \
        -v c="$(attribute sky-psf.h5 /shift/zero_point_chi2 %.9g)" -v n="$(attribute sky-psf.h5 /shift/zero_point_dof %.9g)" \
        'BEGIN { printf "%.2f", c / n }')" '0.0012 +- 0.0005; 172; 2.5' -
}

# image_row PROTOTYPE: chi squared of the image before and after, of psf.h5
image_row() {
    local before after dof
    before=$(attribute psf.h5 /shift/chi2_before %.9g)
    after=$(attribute psf.h5 /shift/chi2_after %.9g)
    dof=$(attribute psf.h5 /shift/dof %.9g)
    row '  chi2/dof of the image, before and after' "$(awk -v b="$before" -v a="$after" -v n="$dof" \
        'BEGIN { printf "%.4f, %.4f", b / n, a / n }')" "$1" -
    bad "$after > 1.02 * $dof"
}

# Pulls of the coefficients of part X over 24 draws of noise, from 0.05 pixel and 1 %. All but the first are 0, which the
# program does not know: their empirical prior makes pulls smaller than 1 (1.11, 1.01 without it). The offset of the only bundle and
# the mean are one: of the two, their sum counts.
coefficients() {
    local n
    for n in {1..24}; do
        specx-sim -q -f --arm z --fibers 25 --wavelength 8400,8600 --snr 3:30 --cosmics 0 --bad-columns 0 --seed "$seed" \
            --noise-seed $((100 * seed + n)) --shift 0.05,0,0.01,0 -o image.h5
        specx-shift -q -f --psf-only --lines none -o psf.h5 image.h5
        paste -d' ' <(values psf.h5 /shift/coefficients) <(values psf.h5 /shift/covariance | awk -v n="$(values psf.h5 /shift/coefficients | wc -l)" '
            { v[NR - 1] = $1 }
            END { for (i = 0; i < n; i++) print v[i * (n + 1)], v[i * n + n - 2], v[i * n + n - 1] }') |
            awk '{ c[NR] = $1; v[NR] = $2; x[NR] = $3; w[NR] = $4 }
                END {
                    half = (NR - 2) / 2
                    for (i = 1; i <= NR - 2; i++) {
                        q = i > half
                        if (i == 1) { c[i] += c[NR - 1] - 0.05; v[i] += v[NR - 1] + 2 * x[i] }
                        if (i == half + 1) { c[i] += c[NR] - 0.01; v[i] += v[NR] + 2 * w[i] }
                        print q, c[i] / sqrt(v[i])
                    }
                }'
    done | awk '{ n[$1]++; s[$1] += $2; p[$1] += $2 * $2 }
        END { printf "%.2f %.2f; %+.2f %+.2f; %d", sqrt(p[0] / n[0]), sqrt(p[1] / n[1]), s[0] / n[0], s[1] / n[1], n[0] }' >coefficients.txt
    row 'pulls of coefficients, 24 draws: x, width; means; n' "$(cat coefficients.txt)" '0.93 0.93; < 0.3 0.4; 144' -
    bad "$(tr -d ';' <coefficients.txt | awk '{ print ($1 > 1.2 || $2 > 1.2 || $3 ^ 2 > 0.09 || $4 ^ 2 > 0.09) }')"
}

# Information on traces and widths that free fluxes leave: one bundle, 60 Angstrom, sky lines and stars.
information() {
    specx-sim -q -f --arm z --fibers 25 --wavelength 8350,8450 --snr 3:30 --cosmics 0 --bad-columns 0 --no-noise -o image.h5
    shift_information image.h5 8370,8430,0.8 >information.txt
    row 'information that free fluxes leave, %: x, width' "$(awk '{ printf "%s%.1f", (NR > 1 ? ", " : ""), 100 * $2 } NR == 2 { exit }' \
        information.txt)" '98.4, 95.9' -
    row '  y, width in y' "$(awk 'NR > 2 { printf "%s%.2g", (NR > 3 ? ", " : ""), 100 * $2 }' information.txt)" '1.6, 0.03' -
}

# moved NAME "OPTIONS OF specx-sim" "OPTIONS OF specx-shift": gives NAME.txt of `left`
moved() {
    # The options are words.
    # shellcheck disable=SC2086
    specx-sim -q -f $2 --seed "$seed" --cosmics 1 --truth truth.h5 -o image.h5
    # shellcheck disable=SC2086
    specx-shift -q -f --psf-only $3 -o psf.h5 image.h5
    left psf.h5 truth.h5 >"$1.txt"
}

shift_case() {
    printf '\n== shift: others, arm z: put in: left, rms (error that is said), mean, pixel (widths: %%); rms of pulls\n'
    row '' specpipe prototype desispec
    moved shift-1 '--arm z --fibers 50 --wavelength 8400,8700 --snr 3:30 --shift 0.05,0,0.01,0' ''
    left_row shift-1.txt x '50 fibres x 300 A, 0.05 pixel, 1 %: x' 0.003 '0.05: 0.0008 (0.0015)' -
    left_row shift-1.txt wx '  width in x' 0.003 '1: 0.12 (0.13)' -
    image_row '1.049, 0.9987'
    moved shift-2 '--arm z --fibers 100 --wavelength 8400,8700 --snr 3:30 --shift 0.3,0,0.01,0' ''
    left_row shift-2.txt x '100 fibres x 300 A, 0.3 pixel, 1 %: x' 0.003 '0.3: 0.0005 (0.0010)' -
    left_row shift-2.txt wx '  width in x' 0.003 '1: 0.12 (0.08)' -
    image_row '2.90, 1.0001'
    moved shift-arc '--arm z --fibers 75 --shift wave --arc all' --lamp
    left_row shift-arc.txt x 'an arc, 75 fibres, all of the arm: x' 0.003 - -
    left_row shift-arc.txt wx '  width in x' 0.0025 - -
    left_row shift-arc.txt y '  y' 0.02 - -
    left_row shift-arc.txt wy '  width in y' 0.01 - -
    coefficients
    information
}
