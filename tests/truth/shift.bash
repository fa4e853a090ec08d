# shellcheck shell=bash disable=SC2154,SC2034,SC2054
# Provides the tables of shifts: traces and widths that have moved, and what is left of that. truth.sh sources this file.

# left PSF TRUTH: what specx-shift left of shifts that were put in, for x, y, wx, wy (pixels; relative): "NAME PUT RMS MEAN
# PULL", rms over fibres and wavelengths, which are correlated.
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
                        if (e[i * nw + k] > 0) { pull2 += (d / e[i * nw + k])^2; np++ }
                    }
                print q, sqrt(truth2 / n), sqrt(sum2 / n), sum / n, np ? sqrt(pull2 / np) : 0
            }' <(values "$1" /shift/wavelength) <(values "$1" "/shift/${q#*:}") <(values "$1" "/shift/${q#*:}_error") \
            <(values "$2" /truth/shift/wavelength) <(values "$2" "/truth/shift/${q%:*}")
    done
}

# left_row FILE NAME TEXT LIMIT PROTOTYPE DESISPEC: a line of `left`; widths in per cent
left_row() {
    local put rms mean pull
    read -r _ put rms mean pull <<<"$(grep "^$2 " "$1")"
    row "$3" "$(awk -v q="$2" -v put="$put" -v rms="$rms" -v mean="$mean" -v pull="$pull" 'BEGIN {
        if (q ~ /w/) printf "%.2f: %.3f, %+.3f; %.2f", 100 * put, 100 * rms, 100 * mean, pull
        else printf "%.3f: %.4f, %+.4f; %.2f", put, rms, mean, pull }')" "$5" "$6"
    bad "$rms > $4"
}

# Traces of the frames of model_z_case.
shift_table() {
    printf '\n== shift: traces of these frames: put in: left, rms and mean, pixel (widths: %%); rms of pulls\n'
    left sky-psf.h5 sky-truth.h5 >shift.txt
    row '' specpipe prototype desispec
    left_row shift.txt x x 0.004 '0.034: 0.0013, -0.0003' '0.0028, -0.016'
    left_row shift.txt wx 'width in x' 0.0025 '0.69: 0.105' -
    left_row shift.txt y y 0.02 '0.038: 0.0051, +0.0017' '0.0104 to 0.0150'
    left_row shift.txt wy 'width in y' 0.01 '0.72: 0.17' -
    row 'zero point +- error, Angstrom; lines' "$(attribute sky-psf.h5 /shift/zero_point %.4f) +- $(
        attribute sky-psf.h5 /shift/zero_point_error %.4f); $(attribute sky-psf.h5 /shift/lines %d)" \
        '0.0012 +- 0.0005; 172' -
}

# moved NAME "OPTIONS OF specx-sim" "OPTIONS OF specx-shift": gives NAME.txt of `left`
moved() {
    # The options are words.
    # shellcheck disable=SC2086
    specx-sim -q -f $2 --cosmics 1 --truth truth.h5 -o image.h5
    # shellcheck disable=SC2086
    specx-shift -q -f --psf-only $3 -o psf.h5 image.h5
    left psf.h5 truth.h5 >"$1.txt"
}

shift_case() {
    printf '\n== shift: others, arm z: put in: left, rms and mean, pixel (widths: %%); rms of pulls\n'
    row '' specpipe prototype desispec
    moved shift-1 '--arm z --fibers 50 --wavelength 8400,8700 --snr 3:30 --shift 0.05,0,0.01,0' ''
    left_row shift-1.txt x '50 fibres x 300 A, 0.05 pixel, 1 %: x' 0.005 '0.05: 0.0008' -
    left_row shift-1.txt wx '  width in x' 0.004 '1: 0.12' -
    moved shift-2 '--arm z --fibers 100 --wavelength 8400,8700 --snr 3:30 --shift 0.3,0,0.01,0' ''
    left_row shift-2.txt x '100 fibres x 300 A, 0.3 pixel, 1 %: x' 0.005 '0.3: 0.0005' -
    left_row shift-2.txt wx '  width in x' 0.004 '1: 0.12' -
    moved shift-arc '--arm z --fibers 75 --shift wave --arc all' --lamp
    left_row shift-arc.txt x 'an arc, 75 fibres, all of the arm: x' 0.003 - -
    left_row shift-arc.txt wx '  width in x' 0.0025 - -
    left_row shift-arc.txt y '  y' 0.02 - -
    left_row shift-arc.txt wy '  width in y' 0.01 - -
}
