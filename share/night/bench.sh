#!/usr/bin/env bash
# bench.sh FOLDER [DEVICE...]: where the time of a night goes. It simulates one in FOLDER (simulate.sh, whose variables it
# takes: PETALS=1 FIBRES=50 EXPOSURES=1 WIDTH=whole), reduces it with one job at a time on each DEVICE (cpu; cuda, or one GPU of
# several, cuda:1), and prints a table of the stages and one of the programs, as soon as a device is done; where it is ended before,
# of what was made until then. A simulation of the same size is used again. What it is at is told on standard error.
#
# Then it reduces the night with JOBS (all processors), and compares the time with what night-model.awk says of the stages.
# FOLDER/times has them in the form of night/times, for other machines and nights:
#
#     awk -v exposures=40 -v nodes=4 -v cores=64 -f night-model.awk FOLDER/times
#
# Processor seconds are user and system time of all processes; the clock counts what other users of the machine take, too.
# Programs have the threads of one of JOBS: more would wait for each other, and their waiting counts. Bytes are those of the
# files on the command line, but for templates, and of the products; the floor is the time that cat and dd take for these,
# with the files in memory.
# The other variables: NIGHT, SEED, and SETTINGS of reduce.mk, as on its command line: SETTINGS='PAGE= EXTRACT="--reject 5"'.
set -euo pipefail
unset MAKEFLAGS MFLAGS MAKELEVEL
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:?usage: bench.sh FOLDER [DEVICE...]}
devices=("${@:2}")
settings=()
eval "settings=(${SETTINGS:-})"
[ ${#devices[@]} -gt 0 ] || devices=(cpu)
export NIGHT=${NIGHT:-20201214} PETALS=${PETALS:-1} FIBRES=${FIBRES:-50} EXPOSURES=${EXPOSURES:-1} WIDTH=${WIDTH:-whole} SEED=${SEED:-1}
processors=$(env -u OMP_NUM_THREADS nproc)
jobs=${JOBS:-$processors}
threads=$((processors / jobs))
export OMP_NUM_THREADS=$((threads > 1 ? threads : 1))
stars=$((PETALS * (FIBRES - FIBRES / 5)))
mkdir -p "$folder"
cd "$folder"
folder=$PWD
tell() { printf '%s: bench.sh: %s\n' "$(date +%T)" "$*" >&2; }
size="$NIGHT $PETALS $FIBRES $EXPOSURES $WIDTH $SEED"
if [ "$(cat night/size 2>/dev/null)" != "$size" ]; then
    tell "simulates $((3 * PETALS * (EXPOSURES + 2))) images of $FIBRES fibres: 10 to 20 s of a processor each with 500 whole ones"
    rm -rf night
    FAULTS='' "$here/simulate.sh" night
    echo "$size" >night/size
fi
TIMEFORMAT='%R %U %S'

# Programs and jobs that note their times: JOB PRODUCT PROGRAM WALL USER SYSTEM a line in $TIMES; the bytes of a product are
# JOB PRODUCT read|written BYTES.
mkdir -p bin
for program in fits2h5 specx-shift specx-extract specx-flat specx-sky specx-flux h5merge rvs-fit h52fits specplot h5table; do
    real=$(command -v "$program")
    cat >bin/$program <<END
#!/usr/bin/env bash
TIMEFORMAT="\$JOB \${product##*/} $program %R %U %S"
{ time $real "\$@" 2>&7; } 7>&2 2>>"\$TIMES"
END
done
cat >bin/job <<END
#!/usr/bin/env bash
first=\${1%.failed}
case \$first in
*.h5 | *.fits | *.html) ;;
*) exec $here/job.sh "\$@" ;;
esac
script=\${*: -1}
[[ \$script != list\ * ]] || script=\$(<"\${script#list }")
# of a batch: its target is none (reduce.mk)
[[ ! \$script =~ ^[[:space:]]*#\ ([^ ]+):\  ]] || first=\${BASH_REMATCH[1]}
export JOB=\$\$
TIMEFORMAT="\$JOB \${first##*/} job %R %U %S"
{ time $here/job.sh "\$@" 2>&7; } 7>&2 2>>"\$TIMES" || exit
# what is read: files on the command line, but for the product; one job may have several (job.sh)
product=\$first all=()
declare -A bytes=() seen=()
for f in \$script; do
    f=\${f%)}
    [[ \$last != '#' ]] || product=\${f%:}
    last=\$f
    [ "\${bytes[\$product]:-}" ] || all+=("\$product")
    : "\${bytes[\$product]:=0}"
    if [[ ! \${seen[\$product \$f]:-} && "\$1 \$product: \$product" != *" \$f" && \$f != *templates.h5 && \$f != *continuum.h5 && \$f != *inputs/* ]] && [ -f "\$f" ]; then
        seen[\$product \$f]=1
        bytes[\$product]=\$((bytes[\$product] + \$(stat -L -c %s "\$f")))
    fi
done
for product in "\${all[@]}"; do
    [[ \$product == *.h5 || \$product == *.fits || \$product == *.html ]] || continue
    echo "\$JOB \${product##*/} read \${bytes[\$product]}"
    echo "\$JOB \${product##*/} written \$(stat -c %s "\$product" 2>/dev/null || echo 0)"
done >>"\$TIMES"
END
chmod +x bin/*

# reduce DEVICE JOBS [ARGUMENT...]: DEVICE as often as there are jobs, for job.sh lets one job have each
reduce() {
    make -s -C night -f "$here/../reduce.mk" NIGHT="$NIGHT" DEVICES="$(printf "$1 %.0s" $(seq "$2"))" -j"$2" \
        "${settings[@]}" "${@:3}"
}

# Seconds that the GPU of a product's last record was held, by `h5table --provenance` on standard input: those that the
# program notes, or else those of the step that computes on it; 0 where it did not.
device_seconds() {
    awk '
        /^[0-9]+\./ { noted = step = 0; gpu = seconds = any = 0 }
        /^    [a-z]/ { seconds = $1 == "seconds"; if ($1 == "device") gpu = $2 ~ /^cuda/ }
        seconds {
            for (i = 1; i < NF; i++)
                if ($i ~ /\.device$/) { noted += $(i + 1); any = 1 }
                else if ($i ~ /^(fit|coadd|flux)$/) step += $(i + 1)
        }
        END { print gpu ? any ? noted : step : 0 }'
}

# ---- bytes a second, of cat and dd ----

images=(night/preproc/"$NIGHT"/*/*.fits)
rate() {
    local t
    cat "${images[@]}" >/dev/null
    t=$({ time cat "${images[@]}" | dd of="$1" bs=1M status=none; } 2>&1 | cut -d ' ' -f 1)
    awk -v t="$t" -v bytes="$(cat "${images[@]}" | wc -c)" 'BEGIN { print bytes / (t > 0 ? t : 0.001) }'
}
read_rate=$(rate /dev/null)
write_rate=$(rate copy)
rm -f copy

# ---- tables ----

# stages DEVICE: the shell's time of a job, and its clock, by the time of its programs: "STAGE-... stage CLOCK CPU" a product.
stages() {
    local device=$1
    awk '
        $3 == "job" { wall[$1] = $4; cpu[$1] = $5 + $6; last[$1] = $2; next }
        $3 == "read" || $3 == "written" || $3 == "device" { line[++n] = $2 " " $3 " " $4; next }
        { line[++n] = $2 " program " $3 " " $4 " " $5 + $6; k = $1 SUBSEP $2; w[k] += $4; c[k] += $5 + $6; sum[$1] += $4; used[$1] += $5 + $6 }
        END {
            for (i = 1; i <= n; i++) print line[i]
            for (j in wall) if (!(j in sum)) print last[j], "stage", wall[j], cpu[j]
            for (k in w) {
                split(k, q, SUBSEP); j = q[1]
                part = sum[j] > 0 ? w[k] / sum[j] : 1
                print q[2], "stage", wall[j] * part, c[k] + (cpu[j] - used[j]) * part
            }
        }' "times-$device" >"stages-$device"
}

# table DEVICE: seconds and bytes of its stages and programs
table() {
    local device=$1
    printf '\n%s petals of %s fibres, %s exposures, one job at a time, %s:\n' "$PETALS" "$FIBRES" "$EXPOSURES" "$device"
    awk -v r="$read_rate" -v w="$write_rate" '
        {
            kind = $1; sub(/[-.].*/, "", kind)
            if (!(kind in n)) { key[++m] = kind; n[kind] = 0 }
            if ($2 == "stage") { cpu[kind] += $4; wall[kind] += $3; all += $4; clock += $3 }
            else if ($2 == "read") { n[kind]++; get[kind] += $3; bytes += $3 }
            else if ($2 == "written") { put[kind] += $3; out += $3 }
            else if ($2 == "device") dev[kind] += $3
            else { p = kind "\t" $3; if (!(p in cpu_of)) program[++np] = p; cpu_of[p] += $5; wall_of[p] += $4; count[p]++ }
        }
        function row(name, n, c, t, g, rd, wr) {
            printf "%-24s %5d %10.2f %5.1f %% %10.2f %9s %9.1f %9.1f %8.2f\n", name, n, c, 100 * c / all, t, g, rd / 1e6, wr / 1e6, rd / r + wr / w
        }
        END {
            printf "%-24s %5s %10s %7s %10s %9s %9s %9s %8s\n", "stage", "n", "cpu s", "share", "clock s", "device s", "MB read", "written", "floor s"
            for (i = 1; i <= m; i++) {
                k = key[i]
                row(k, n[k], cpu[k], wall[k], k in dev ? sprintf("%.3f", dev[k]) : "-", get[k], put[k])
                for (j = 1; j <= np; j++) {
                    split(program[j], q, "\t")
                    if (q[1] == k) printf "  %-22s %5d %10.2f %5.1f %% %10.2f\n", q[2], count[program[j]], cpu_of[program[j]], 100 * cpu_of[program[j]] / all, wall_of[program[j]]
                }
            }
            row("all", 0, all, clock, "", bytes, out)
        }' "stages-$device"
}

# ---- one job at a time ----

# Ended by a signal, for its time is over: the table of the products that there are.
end_early() {
    trap - TERM INT
    kill "$running"
    wait
    tell "ended; of the products that were made until then:"
    stages "$device"
    [ ! -s "stages-$device" ] || table "$device"
    exit 1
}
for device in "${devices[@]}"; do
    export TIMES=$folder/times-$device
    rm -rf night/redux "$TIMES"
    : >"$TIMES"
    tell "reduces on $device, one job at a time: 2 to 3 minutes of a processor a petal with 500 whole fibres and one exposure"
    # with the times in the provenance; on the GPU a process a frame, so that each product has its own
    PATH=$folder/bin:$PATH reduce "$device" 1 SHELL="$folder/bin/job" COMMON= BATCH=1 >log 2>&1 &
    running=$!
    trap end_early TERM INT
    wait $running || {
        cat log
        exit 1
    }
    trap - TERM INT
    if [ "$device" != cpu ]; then
        for f in night/redux/"$NIGHT"/*.h5; do
            echo "- $(basename "$f") device $(h5table -q --provenance "$f" | device_seconds)" >>"$TIMES"
        done
    fi
    stages "$device"
    table "$device"
done

first=${devices[0]}
{
    echo "# Measured by bench.sh: PETALS=$PETALS FIBRES=$FIBRES EXPOSURES=$EXPOSURES WIDTH=$WIDTH; devices: ${devices[*]}; $processors processors."
    printf '# stage\twave\tof one\tprocessor s\tbeside a GPU\tGPU s\tMB read\tMB written\ts alone\n'
    for device in "${devices[@]}"; do sed "s/^/$device /" "stages-$device"; done |
        awk -v cameras="$((3 * PETALS))" -v petals="$PETALS" -v exposures="$EXPOSURES" -v stars="$stars" '
        {
            device = $1 == "cpu" ? "cpu" : "gpu"
            kind = $2; sub(/-.*/, "", kind)
            parts = split($2, p, "-")
            # psf and frame are of the night, too; the flat has the second number
            wave = kind ~ /^(coadd|rv|rvtab)$/ ? "group" : kind == "flat" || parts == 2 || (kind == "frame" && p[3] + 0 < 3) ? "camera" : "petal"
            k = kind "\t" wave
            if (kind ~ /html$/) next
            if (!(k in n)) { key[++m] = k; n[k] = 0 }
            if ($3 == "stage") { cpu[device, k] += $5; clock[device, k] += $4; products[device, k]++ }
            if ($3 == "read" && !(seen[$2]++)) { n[k]++; get[k] += $4 }
            if ($3 == "written") put[k, $2] = $4
            if ($3 == "device") own[$2] = $4
            any[device] = 1
            of_product[$2] = k
        }
        END {
            for (i in put) { split(i, q, SUBSEP); sum[q[1]] += put[i] }
            for (i in own) gpu[of_product[i]] += own[i]
            for (i = 1; i <= m; i++) {
                k = key[i]; split(k, q, "\t")
                one = q[2] == "camera" ? "camera" : q[2] == "group" ? "star" : q[1] ~ /^(standards|spectra)$/ ? "petal" : "frame"
                of = one == "camera" ? cameras : one == "star" ? stars * exposures : one == "petal" ? petals * exposures : cameras * exposures
                c = any["cpu"] ? cpu["cpu", k] : cpu["gpu", k]
                printf "%s\t%s\t%.5g\t%.5g\t%s\t%.5g\t%.5g\t%.3g\n", k, one, c / of, (any["gpu"] ? cpu["gpu", k] : c) / of,
                    any["gpu"] && k in gpu && q[1] !~ /spectra|rvtab/ ? sprintf("%.4g", gpu[k] / of) : "-", get[k] / of / 1e6, sum[k] / of / 1e6,
                    any["gpu"] ? clock["gpu", k] / products["gpu", k] : 0
            }
        }'
} >./times

# ---- the model, of a night that was not measured: JOBS at a time ----

tell "reduces with $jobs jobs side by side"
rm -rf night/redux
{ TIMEFORMAT='%R %U %S' && time reduce "$first" "$jobs" PAGE= >log 2>&1; } 2>./whole || {
    cat log
    exit 1
}
read -r clock user system <./whole
gpus=0
[ "$first" = cpu ] || gpus=1
disk=$(awk -v r="$read_rate" -v w="$write_rate" 'BEGIN { print (r < w ? r : w) / 1e9 }')
model=(-v "exposures=$EXPOSURES" -v "cameras=$((3 * PETALS))" -v "petals=$PETALS" -v "stars=$stars" -v "groups=$((EXPOSURES > 1 ? 2 : 1))")
printf '\nThe same with %s jobs side by side, and what night-model.awk makes of these times:\n' "$jobs"
awk "${model[@]}" -v cores="$processors" -v gpus="$gpus" -v disk="$disk" -f "$here/../night-model.awk" times | awk -v clock="$clock" -v cpu="$(awk -v u="$user" -v s="$system" 'BEGIN { print u + s }')" '
    /^night/ {
        printf "clock      %8.1f s measured %8.1f s model, %+.0f %%\n", clock, $2, 100 * ($2 / clock - 1)
        printf "processors %8.1f s measured %8.1f s model, %+.0f %%\n", cpu, $4 * 3600, 100 * ($4 * 3600 / cpu - 1)
    }'
echo "busy processors: $(cut -d ' ' -f 1 /proc/loadavg) of $processors; others than this make the clock longer than the model"
printf '\nOne exposure of 30 cameras of that size on this machine, after arcs and flats, by the model:\n'
awk -v exposures=1 -v cameras=30 -v petals=10 -v stars="$((10 * stars / PETALS))" -v groups=10 -v cores="$processors" -v gpus="$gpus" -v disk="$disk" \
    -f "$here/../night-model.awk" times | grep -v ^survey
