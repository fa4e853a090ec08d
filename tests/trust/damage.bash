# shellcheck shell=bash
# Damaged products: one bit of a file is flipped, in its structure, its values or its inventory, and a program reads it. The
# run ends with status 3, a message of one line that names the file, and the old output; or with the same product, where it
# does not read these bytes.
# shellcheck disable=SC2154,SC2034,SC2016

# flip FILE BYTE: flips bit BYTE % 8 of x.h5, a copy of FILE.
flip() {
    cp "$1" x.h5
    local byte
    byte=$(od -An -tu1 -j"$2" -N1 x.h5)
    # shellcheck disable=SC2059
    printf "\\x$(printf %x $((byte ^ 1 << $2 % 8)))" | dd of=x.h5 bs=1 seek="$2" conv=notrunc status=none
}

# Readers of damaged files: FILE COMMAND, with x.h5 for the file.
damaged=(
    'spectra.h5 rvs-fit -q -j 1 --device cpu --rows 0:1 --templates $d/templates.h5 --reproducible -f -o out/product x.h5'
    'spectra.h5 h52fits -q -f -o out/product x.h5'
    'spectra.h5 h5merge -q --by rows --reproducible -f -o out/product x.h5'
    'spectra.h5 h5check x.h5'
    'frame-r0.h5 h5merge -q --reproducible -f -o out/product x.h5'
    'frame-r0.h5 specx-sky -q -j 1 --reproducible -f -o out/product x.h5'
    'frame-r0.h5 h52fits -q -f -o out/product x.h5'
    'frame-r0.h5 h5check x.h5'
    'image-r0.h5 specx-extract -q -j 1 --device cpu --wavelength 6400,6410,0.8 --spectra 0:2 --reproducible -f -o out/product x.h5'
    'image-r0.h5 h5check x.h5'
    'templates.h5 rvs-fit -q -j 1 --device cpu --rows 0:1 --templates x.h5 --reproducible -f -o out/product $d/spectra.h5'
    'templates.h5 h5check x.h5'
)

class flip 499 "one bit of a product is flipped, in every thousandth byte"
class_flip() {
    local c file n total step=1009 # prime, so that all bits of a byte and all places of a record have their turn
    for c in "${damaged[@]}"; do
        file=$d/${c%% *} c=${c#* }
        cp "$file" x.h5
        right_run "$c" || continue
        total=$(stat -c %s "$file")
        for ((n = SEED % step; n < total; n += step)); do
            turn || continue
            flip "$file" $n
            disturbed "$c"
            if [ "$status" -eq 3 ] && grep -q '^[a-z0-9-]*: \(--templates \)\{0,1\}x\.h5:' stderr && [ "$(wc -l <stderr)" -eq 1 ] &&
                { [ ! -e right/product ] || cmp -s out/product old/product; }; then
                ok
            elif [ "$status" -eq 0 ] && [[ $c != h5check* ]] && cmp -s out/product right/product; then
                ok
            else
                wrong "byte $n of ${file##*/}: $c: status $status: $(head -c 200 stderr)"
            fi
        done
    done
}
