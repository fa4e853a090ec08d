# shellcheck shell=bash
# Damaged FITS files, and heaps of HDF5. Compressed images: each keyword that says how tiles are laid out or coded with each of some values, then random
# bytes of tables and streams. A program ends with 0, 3 or, where a file claims too much, 4, and a product that is whole.
# shellcheck disable=SC2154

# damaged N: damage N of all.fits.
damaged() {
    local status=0
    fits_damage all.fits "$1" in.fits || {
        wrong "fits_damage all.fits $1: fails"
        return
    }
    rm -f out.h5
    (ulimit -v 6000000 && exec timeout -k 5 30 fits2h5 -q in.fits -o out.h5) >stdout 2>stderr || status=$?
    case $status in
    0) [ -s out.h5 ] && ok && return ;;
    3 | 4) [ ! -e out.h5 ] && [ "$(wc -l <stderr)" -eq 1 ] && ok && return ;;
    esac
    wrong "fits_make tiles all.fits; fits_damage all.fits $1 in.fits; fits2h5 in.fits: status $status: $(head -c 300 stderr)"
}

class tile-keys 251 "a keyword of a compressed image has another value"
class_tile-keys() {
    local n total
    fits_make tiles all.fits
    total=$(fits_damage all.fits)
    for ((n = 0; n < total; n++)); do
        turn && damaged "$n"
    done
}

class tile-bytes 101 "bytes of compressed images are changed"
class_tile-bytes() {
    local n
    fits_make tiles all.fits
    for ((n = 1; n <= 4000; n++)); do
        turn && damaged "-$((SEED * 100000 + n))"
    done
}

class fits-sums 151 "a bit of a FITS file with checksums is inverted"
class_fits-sums() {
    local n status size at
    cp "$d/psf-r0.fits" right.fits
    size=$(stat -c %s right.fits)
    for ((n = 1; n <= 4000; n++)); do
        turn || continue
        at=$(((n * 2654435761 + SEED * 40503) % (8 * size)))
        fits_damage right.fits "b$at" in.fits
        status=0
        fits2h5 -q -f --strict in.fits -o out.h5 2>stderr || status=$?
        # without its keyword there is no CHECKSUM to disagree with
        if [ $status -eq 3 ] || [ "$(tail -c +$((at / 8 / 80 * 80 + 1)) right.fits | head -c 8)" = CHECKSUM ]; then
            ok
        else
            wrong "fits_damage psf-r0.fits b$at in.fits; fits2h5 --strict in.fits: status $status"
        fi
    done
}

# heap_bit AT: bit AT of right.h5 is inverted, which a reader finds, or does not look at.
heap_bit() {
    local command status
    fits_damage right.h5 "b$1" in.h5
    for command in 'h5check in.h5' 'h5merge -q -f in.h5 -o out.h5'; do
        status=0
        # shellcheck disable=SC2086
        (ulimit -t 5 && exec $command) >stdout 2>stderr || status=$?
        if [[ $status != [013] ]] || grep -q 'crashed\|was stopped' stderr; then
            wrong "h5edit frame-r0.h5 attr / note text; fits_damage frame-r0.h5 b$1 in.h5; $command: status $status: $(head -c 200 stderr)"
            return
        fi
    done
    ok
}

class heaps 307 "bits of a heap of texts in an HDF5 file, and of what refers to it, are inverted"
class_heaps() {
    local n k at heap address=''
    cp "$d/frame-r0.h5" right.h5
    h5edit right.h5 attr / note text # which takes the inventory
    heap=$(grep -abo GCOL right.h5 | head -n 1 | cut -d : -f 1)
    for ((n = 1; n <= 2000; n++)); do
        turn && heap_bit $((8 * heap + 32 + (n * 2654435761 + SEED * 40503) % (8 * 4092)))
    done
    # length, address of the heap, and number of each text
    for ((k = 0; k < 64; k += 8)); do address+=$(printf '\\x%02x' $((heap >> k & 255))); done
    while read -r at; do
        for ((n = 0; n < 128; n++)); do
            turn && heap_bit $((8 * (at - 4) + n))
        done
    done < <(LC_ALL=C grep -abo -P "$address" right.h5 | cut -d : -f 1)
}
