# bash completion for distrun.  Install as /usr/share/bash-completion/completions/distrun.
# tests/launcher/documents_test.cc compares the options with the program's.

_distrun_options='
--nproc-per-node
--numa-binding
--virtual-local-rank
--role
--nnodes
--standalone
--rdzv-backend
--rdzv-endpoint
--rdzv-id
--rdzv-conf
--node-rank
--master-addr
--master-port
--local-addr
--start-timeout
--events
--hosts
--hostfile
--ssh-command
--remote-distrun
--env
--host-prefix
--module
--no-python
--run-path
--start-method
--max-restarts
--monitor-interval
--shutdown-timeout
--signals-to-handle
--log-dir
--redirects
--tee
--local-ranks-filter
--log-line-prefix-template
--duplicate-stdout-filters
--duplicate-stderr-filters
--logs-specs
--event-log-handler
--console
--log-format
--verbose
--quiet
--version
--help
'

# Options that stand alone; all others are followed by a value.
_distrun_flags=' --virtual-local-rank --standalone --host-prefix --module -m --no-python --run-path --verbose -v --quiet -q --version --help -h '

_distrun() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
  COMPREPLY=()

  if [[ ${COMP_WORDS[1]} == status && $COMP_CWORD -gt 1 ]]; then
    COMPREPLY=($(compgen -W '--rdzv-endpoint --job --json --watch --help' -- "${current//_/-}"))
    return
  fi
  if [[ ${COMP_WORDS[1]} == flight && $COMP_CWORD -gt 1 ]]; then
    if [[ $current == -* ]]; then
      COMPREPLY=($(compgen -W '--last --trace --help' -- "$current"))
    else
      COMPREPLY=($(compgen -f -- "$current"))
      compopt -o filenames 2>/dev/null
    fi
    return
  fi
  if [[ ${COMP_WORDS[1]} == submit && $COMP_CWORD -gt 1 ]]; then
    if [[ $current == -* ]]; then
      COMPREPLY=($(compgen -W '--nodes --min-nodes --spares --nproc-per-node --cpus-per-node --gpus-per-node
        --partition --time --job-name --max-restarts --requeue --notice --save-signal --max-requeues --log-dir
        --setup --slurm --distrun --launcher --from --dry-run --wait --help' -- "$current"))
    else
      COMPREPLY=($(compgen -f -- "$current"))
      compopt -o filenames 2>/dev/null
    fi
    return
  fi

  # Options end at the script: find out whether it is already there.
  local i word
  for ((i = 1; i < COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]}
    case $word in
      -[rt]?* | --) ;;
      -*)
        word=${word//_/-}
        if [[ $_distrun_flags != *" $word "* ]]; then
          # bash makes words of "=": --opt = value
          [[ ${COMP_WORDS[i + 1]} == '=' ]] && ((++i))
          ((++i))
        fi
        ;;
      *)
        COMPREPLY=($(compgen -f -- "$current"))
        compopt -o filenames 2>/dev/null
        return
        ;;
    esac
  done

  if [[ $current == '=' ]]; then
    current=''
  elif [[ $previous == '=' ]]; then
    previous=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  case ${previous//_/-} in
    --nproc-per-node) COMPREPLY=($(compgen -W 'auto gpu cpu' -- "$current")) ;;
    --numa-binding) COMPREPLY=($(compgen -W 'node socket exclusive core-complex' -- "$current")) ;;
    --rdzv-backend) COMPREPLY=($(compgen -W 'static c10d etcd' -- "$current")) ;;
    --start-method) COMPREPLY=($(compgen -W 'spawn fork forkserver' -- "$current")) ;;
    --redirects | -r | --tee | -t) COMPREPLY=($(compgen -W '0 1 2 3' -- "$current")) ;;
    --console) COMPREPLY=($(compgen -W 'auto inherit lines' -- "$current")) ;;
    --log-format) COMPREPLY=($(compgen -W 'text json' -- "$current")) ;;
    --log-dir)
      COMPREPLY=($(compgen -d -- "$current"))
      compopt -o filenames 2>/dev/null
      ;;
    --rdzv-conf)
      COMPREPLY=($(compgen -W 'timeout= join_timeout= last_call_timeout= close_timeout=
        heartbeat_timeout= keep_alive_interval= keep_alive_max_attempt= is_host= read_timeout=
        rejoin_wait= reattach_timeout= takeover= takeover_timeout=' -- "$current"))
      compopt -o nospace 2>/dev/null
      ;;
    --role | --nnodes | --rdzv-endpoint | --rdzv-id | --node-rank | --master-addr | --master-port | \
      --local-addr | --start-timeout | --max-restarts | --monitor-interval | --shutdown-timeout | \
      --signals-to-handle | --local-ranks-filter | --log-line-prefix-template | --duplicate-stdout-filters | \
      --duplicate-stderr-filters | --logs-specs | --event-log-handler | --ssh-command) ;;
    --env) COMPREPLY=($(compgen -v -- "$current")) ;;
    --hosts) COMPREPLY=($(compgen -A hostname -- "$current")) ;;
    *)
      if [[ $current == -* ]]; then
        COMPREPLY=($(compgen -W "$_distrun_options" -- "${current//_/-}"))
      else
        COMPREPLY=($(compgen -f -- "$current"))
        compopt -o filenames 2>/dev/null
      fi
      ;;
  esac
}
complete -F _distrun distrun
