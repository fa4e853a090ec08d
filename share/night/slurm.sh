#!/usr/bin/env bash
# slurm.sh RULES NIGHT ARRAY OPTIONS < PARTS: prints a script that submits a night to Slurm: an array of cameras, one of
# petals, one of groups, and a job that makes the page, and again what a lost job has left. Each begins when the one
# before has ended, however that was: what could not be made has a record, and what is absent is flagged.
#
# An element makes every ARRAY-th part with the rules of the file RULES. One that is queued again finds what is done (job.sh).
# OPTIONS are those of sbatch; the environment: OUT, and MAKEFLAGS with the settings of the command line.
set -euo pipefail
rules=$1 night=$2 most=$3 options=$4
parts=$(tr ' ' '\n')
make="make -s -f $(printf %q "$rules") NIGHT=$(printf %q "$night")"
settings=
[[ " ${MAKEFLAGS:-}" != *' -- '* ]] || settings="-- ${MAKEFLAGS#*-- }"

cat <<END
#!/usr/bin/env bash
set -euo pipefail
cd $(printf %q "$PWD")
unset MAKELEVEL MFLAGS
export MAKEFLAGS=$(printf %q "$settings")
mkdir -p $OUT/log
submit() {
    sbatch --parsable --requeue --open-mode=append $options "\$@"
}
END
after=
for kind in camera petal group; do
    mapfile -t list < <(grep "^$kind-" <<<"$parts")
    [ ${#list[@]} -gt 0 ] || continue
    n=$((${#list[@]} < most ? ${#list[@]} : most))
    cat <<END

$kind=\$(submit --job-name=$night-$kind --output=$OUT/log/slurm-%x-%a.out --array=0-$((n - 1))$after <<'JOB'
#!/usr/bin/env bash
parts=(${list[@]})
status=0
for ((i = SLURM_ARRAY_TASK_ID; i < \${#parts[@]}; i += $n)); do
    $make PART=\${parts[i]} -j\$((SLURM_CPUS_ON_NODE < 3 ? SLURM_CPUS_ON_NODE : 3)) || status=\$?
done
exit \$status
JOB
)
echo "$kind: job \$$kind, ${#list[@]} parts in $n elements"
END
    after=" --dependency=afterany:\$$kind"
done
cat <<END

night=\$(submit --job-name=$night --output=$OUT/log/slurm-%x.out$after <<'JOB'
#!/usr/bin/env bash
exec $make -j\$SLURM_CPUS_ON_NODE
JOB
)
echo "night: job \$night; what it says: $OUT/log/slurm-$night.out"
END
