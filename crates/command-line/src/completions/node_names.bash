
# Completes names of machines, which the server is asked for.
_ferrite_node_names() {
    local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" first
    case "${prev}" in
        --node|--candidate) first=0 ;;
        *)
            case "${COMP_WORDS[1]}" in
                undeploy) first=2 ;;
                node|nodes)
                    case "${COMP_WORDS[2]}" in
                        create) return ;;
                        power|maintenance) first=4 ;;
                        *) first=3 ;;
                    esac
                    ;;
                *) return ;;
            esac
            ;;
    esac
    if [[ "${COMP_CWORD}" -ge "${first}" && "${cur}" != -* ]]; then
        COMPREPLY+=( $(compgen -W "$("${COMP_WORDS[0]}" node list -o name 2>/dev/null)" -- "${cur}") )
    fi
}

_ferrite_with_node_names() {
    _ferrite "$@"
    _ferrite_node_names
}

complete -F _ferrite_with_node_names -o bashdefault -o default ferrite
