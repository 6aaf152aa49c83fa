
# Completes names of machines, which the server is asked for.
_ferrite_node_names() {
    local -a names
    names=(${(f)"$(${words[1]} node list -o name 2>/dev/null)"})
    compadd -a names
}
