#!/usr/bin/env bash
# plan.sh NIGHT IMAGES PSFS OUT [NSIDE]: writes OUT/plan.mk, variables of make: which cameras and exposures a night has,
# CAMERAS, and SCIENCE, FLATS and ARCS, numbers of exposures; IMAGE-CAM-EXPID, PSF-CAM, the files, also those that are
# expected and absent; TILE-EXPID. IMAGES and PSFS are patterns with the words NIGHT, EXPID and CAM, and *.
#
# With NSIDE also PIXELS, those of HEALPix that have targets, hpxNUMBER, and FROM-hpxNUMBER, PETAL-EXPID of the exposures
# that see them; OUT/inputs/hpxNUMBER are the TARGETIDs. All exposures of a tile have one fibermap a petal.
#
# OUT/inputs/CAM-EXPID and OUT/inputs/CAM are stamps that products depend on: they say name, size and time of a file, and
# are written where these change. So a file that arrives late counts as new, whatever its time is.
#
# Lists of products that a make of this machine has left, which was killed, are removed (reduce.mk).
set -euo pipefail
shopt -s nullglob

# Files of a pattern: "CAM EXPID FILE" a line, the EXPID empty where the pattern has none. A camera is letters, its arm, and a
# number; of one digit, where that of the exposure follows.
list() {
    local pattern=${1//NIGHT/$night} glob regex word file i order=() cam='[A-Za-z]+[0-9]+'
    [[ $pattern != *CAMEXPID* ]] || cam='[A-Za-z]+[0-9]'
    glob=${pattern//EXPID/[0-9]*}
    glob=${glob//CAM/[A-Za-z]*[0-9]}
    regex=$(sed 's/[.+?(){}|^$]/\\&/g; s/\*/[^\/]*/g' <<<"$pattern")
    while [[ $regex =~ (EXPID|CAM) ]]; do
        word=${BASH_REMATCH[1]}
        order+=("$word")
        if [ "$word" = CAM ]; then
            regex=${regex/CAM/($cam)}
        else
            regex=${regex/EXPID/([0-9]+)}
        fi
    done
    # The pattern is to be expanded.
    # shellcheck disable=SC2231
    for file in $glob; do
        [[ -e $file && $file =~ ^$regex$ ]] || continue
        local CAM='' EXPID=''
        for i in "${!order[@]}"; do
            printf -v "${order[i]}" %s "${BASH_REMATCH[i + 1]}"
        done
        echo "$CAM $EXPID $file"
    done
}

# Kind and tile of an exposure, "science 1234", from the first HDUs of a file that may be compressed; nothing where the
# file cannot be read.
kind() {
    { case $1 in *.gz) gzip -dc "$1" ;; *) cat "$1" ;; esac || true; } 2>/dev/null | head -c 86400 | tr -d '\0' |
        fold -b -w 80 | LC_ALL=C awk -F "[=/']+" '
            /^(OBSTYPE|FLAVOR|TILEID) *=/ {
                key = $1; value = $2; gsub(/ /, "", key); gsub(/ /, "", value)
                if (value == "") value = $3
                gsub(/ /, "", value)
                if (!(key in card)) card[key] = value
            }
            END {
                k = tolower("OBSTYPE" in card ? card["OBSTYPE"] : card["FLAVOR"])
                if (k != "") print k, card["TILEID"]
            }'
}

night=$1 images=$2 psfs=$3 out=$4 nside=${5:-}
if [[ $images != *CAM*EXPID* && $images != *EXPID*CAM* ]] || [[ $psfs != *CAM* ]]; then
    echo "plan.sh: IMAGES=$images needs the words CAM and EXPID, PSFS=$psfs needs CAM" >&2
    exit 1
fi
# Names of files become targets and commands, which make and the shell take apart at these.
odd=$'[][ \t%:;#\'"`\\\\|&<>()?*$]'
check_name() {
    ! [[ $1 =~ $odd ]] || {
        echo "plan.sh: $1: names of images and PSFs must not have blanks, or any of % : ; # ' \" \` \\ | & < > ( ) [ ] ? * \$: rename it, or link to it" >&2
        exit 1
    }
}

declare -A image=() psf=() kind=() tile=() seen=() exposures=()
while read -r cam exp file; do
    check_name "$file"
    : "${image[$cam-$exp]:=$file}" "${seen[$cam]:=1}" "${exposures[$exp]:=1}"
done < <(list "$images" | sort)
while read -r cam file; do
    check_name "$file"
    : "${psf[$cam]:=$file}"
done < <(list "$psfs" | sort)
if [ ${#image[@]} -eq 0 ]; then
    echo "plan.sh: no images $images of night $night: set IMAGES (CAM is letters and a number, such as b0 or red12; link to files whose cameras are called otherwise)" >&2
    exit 1
fi
readarray -t cameras < <(printf '%s\n' "${!seen[@]}" | sort)
readarray -t expids < <(printf '%s\n' "${!exposures[@]}" | sort)

# An exposure none of whose files can be read is taken for one of stars, so that its failures are seen.
for exp in "${expids[@]}"; do
    for cam in "${cameras[@]}"; do
        [ -z "${image[$cam-$exp]:-}" ] || read -r "kind[$exp]" "tile[$exp]" < <(kind "${image[$cam-$exp]}") || continue
        break
    done
    case ${kind[$exp]:=science} in
    science) science+=" $exp" ;;
    flat) flats+=" $exp" ;;
    arc) arcs+=" $exp" ;;
    esac
done

# A name that a pattern may have.
expected() {
    local name=${1//NIGHT/$night}
    name=${name//CAM/$2}
    name=${name//EXPID/${3:-}}
    echo "${name//\*/}"
}

# Makes that begin together write one after another.
mkdir -p "$out/inputs"
exec 8>"$out/.plan.lock"
flock 8 || true
for list in "$out/.list-$HOSTNAME."*; do
    process=${list#"$out/.list-$HOSTNAME."}
    [ -e "/proc/${process%%-*}" ] || rm -f "$list"
done
exec >"$out/.plan.mk"
echo "CAMERAS := ${cameras[*]}"
echo "SCIENCE :=${science:-}"
echo "FLATS :=${flats:-}"
echo "ARCS :=${arcs:-}"
for exp in ${science:-}; do
    echo "TILE-$exp := ${tile[$exp]:-none}"
done

declare -A identity=()
while read -r name size; do
    identity[$name]="$name $size"
done < <(printf '%s\0' "${image[@]}" ${psf[@]+"${psf[@]}"} | xargs -0 stat -L -c '%n %s %.Y')
# file VARIABLE STAMP NAME
file() {
    local new="${identity[$3]:-$3 is absent}" old=
    echo "$1 := $3"
    { [ ! -e "$out/inputs/$2" ] || read -r old <"$out/inputs/$2"; } && [ "$old" = "$new" ] || echo "$new" >"$out/inputs/$2"
}
for cam in "${cameras[@]}"; do
    file "PSF-$cam" "$cam" "${psf[$cam]:-$(expected "$psfs" "$cam")}"
    for exp in ${science:-} ${flats:-} ${arcs:-}; do
        file "IMAGE-$cam-$exp" "$cam-$exp" "${image[$cam-$exp]:-$(expected "$images" "$cam" "$exp")}"
    done
done

# replace FILE: takes FILE.new where it differs
replace() {
    if cmp -s "$1.new" "$1"; then rm "$1.new"; else mv "$1.new" "$1"; fi
}

# An exposure without a tile is a field of its own.
if [ -n "$nside" ]; then
    declare -A files=() fields=()
    for exp in ${science:-}; do
        field=${tile[$exp]:-none-$exp}
        for cam in "${cameras[@]}"; do
            petal=${cam##*[A-Za-z]}
            fields[$petal-$field]+=" $petal-$exp"
            [ -z "${image[$cam-$exp]:-}" ] || files[$petal-$field]+=" ${image[$cam-$exp]}"
        done
    done
    here=$(dirname "$0")
    for field in "${!files[@]}"; do
        echo "$nside $out/inputs/targets-$field${files[$field]}"
    done | xargs -P "$(nproc)" -L 1 "$here/targets.sh"
    lists=()
    for field in "${!files[@]}"; do
        [ ! -s "$out/inputs/targets-$field" ] || lists+=("$out/inputs/targets-$field")
    done
    mkdir -p "$out/inputs"
    rm -f "$out"/inputs/hpx*.new
    pixels=()
    while read -r pixel members; do
        pixels+=("hpx$pixel")
        from=
        for field in $members; do from+=${fields[$field]}; done
        echo "FROM-hpx$pixel := $(tr ' ' '\n' <<<"$from" | sort -u -t - -k 2,2 -k 1,1 | xargs)"
        sort -u "$out/inputs/hpx$pixel.new" -o "$out/inputs/hpx$pixel.new"
        replace "$out/inputs/hpx$pixel"
    done < <(LC_ALL=C awk -v out="$out/inputs/hpx" '
        FNR > 1 {
            if ($1 != last) { close(file); file = out $1 ".new"; last = $1 }
            print $2 >>file
            field = FILENAME
            sub(/.*\/targets-/, "", field)
            if (!seen[$1, field]++) members[$1] = members[$1] " " field
        }
        END { for (pixel in members) print pixel members[pixel] }' ${lists[@]+"${lists[@]}"} | sort -n)
    echo "PIXELS := ${pixels[*]-}"
fi
mv "$out/.plan.mk" "$out/plan.mk"
