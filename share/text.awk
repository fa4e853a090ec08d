# Turns a text into a C string: -v name=NAME gives `const char NAME[]`.
BEGIN {
    print "/* made by share/text.awk: do not edit */"
    printf "extern const char %s[];\nconst char %s[] =\n", name, name
}
{
    gsub(/\\/, "\\\\")
    gsub(/"/, "\\\"")
    printf "    \"%s\\n\"\n", $0
}
END {
    print "    ;"
}
