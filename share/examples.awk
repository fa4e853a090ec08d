# awk -f examples.awk PAGE.in: the examples of a manual page, of its sections QUICK START and EXAMPLES: lines `$ COMMAND`
# (continued lines joined) and lines of the output wanted. Indented displays are not examples.
/^\.Sh / { inside = ($0 == ".Sh QUICK START" || $0 == ".Sh EXAMPLES") }
inside && /^\.Bd -literal$/ { literal = 1; next }
/^\.Ed/ { literal = 0 }
literal {
    gsub(/\\e/, "\\"); gsub(/\\&/, ""); gsub(/\\\(dq/, "\"")
    line = line $0
    if (line ~ /\\$/) { sub(/\\$/, "", line); next }
    print line; line = ""
}
