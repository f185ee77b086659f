#!/usr/bin/env bash
# Start the ranks of one node. Every node runs this with the same variables, but for NODE_RANK:
#
#   HEAD=host0 NODES=2 NODE_RANK=0 RANKS=8 torchrun.sh run.toml --set train.out=/shared/run
#
# HEAD             host or address of node 0, where nodes meet                 [PET_MASTER_ADDR]
# PORT             its port for that                                           [PET_MASTER_PORT, 29400]
# NODES            number of nodes                                             [PET_NNODES]
# NODE_RANK        which node this is, from 0                                  [PET_NODE_RANK]
# RANKS            ranks of a node                                             [PET_NPROC_PER_NODE]
# RUN_ID           the same on all nodes, another for each run at once         [laconic]
# ADDRESS          address of this node, where its name tells others nothing   []
# MAX_RESTARTS     how often ranks start again after one has failed            [3]
# JOIN_S           seconds in which all nodes have to come                     [600]
# OMP_NUM_THREADS  cores of a rank                                             [cores / RANKS]
# GLOO_SOCKET_IFNAME  network interface, where a node has several              []
#
# Arguments are those of laconic train. --resume is added: a node that starts again goes on.
set -euo pipefail

head=${HEAD:-${PET_MASTER_ADDR:?HEAD: set it to the host of node 0}}
port=${PORT:-${PET_MASTER_PORT:-29400}}
nodes=${NODES:-${PET_NNODES:?NODES: set it to the number of nodes}}
node=${NODE_RANK:-${PET_NODE_RANK:?NODE_RANK: set it to the number of this node, from 0}}
ranks=${RANKS:-${PET_NPROC_PER_NODE:?RANKS: set it to the ranks of a node}}
join_s=${JOIN_S:-600}

# gloo has two sockets for each other rank; without them a run ends with "Too many open files"
files=$((2 * (nodes * ranks - 1) + 64))
if [[ $(ulimit -Sn) != unlimited ]] && (($(ulimit -Sn) < files)); then
    ulimit -Sn "$files" 2>/dev/null || {
        echo "torchrun.sh: $((nodes * ranks)) ranks need $files open files, the limit is $(ulimit -Hn);" \
            "raise it (ulimit -Hn, LimitNOFILE of the service)" >&2
        exit 1
    }
fi

threads=$(($(nproc) / ranks))
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((threads > 0 ? threads : 1))}

exec torchrun \
    --nnodes "$nodes" --nproc-per-node "$ranks" \
    --rdzv-backend c10d --rdzv-endpoint "$head:$port" --rdzv-id "${RUN_ID:-laconic}" \
    --rdzv-conf "is_host=$((node == 0)),join_timeout=$join_s,read_timeout=$join_s" \
    ${ADDRESS:+--local-addr "$ADDRESS"} \
    --max-restarts "${MAX_RESTARTS:-3}" \
    --no-python laconic train "$@" --resume
