#!/bin/sh
# Serves a model for engine.kind="server": peers/vllm_server.sh MODEL unix:SOCKET|PORT [options of vLLM]
#
# In development mode, whose routes load weights and take no key: on a socket of this user, or a port of loopback.
set -eu
ROOT=$(cd "$(dirname "$0")/.." && pwd)
MODEL=$1 ADDRESS=$2
shift 2
case $ADDRESS in
  unix:*) umask 077; set -- --uds "${ADDRESS#unix:}" "$@" ;;
  *) set -- --host 127.0.0.1 --port "$ADDRESS" "$@" ;;
esac
PYTHONPATH=$ROOT/src/turnwise/engines/vllm/guest
VLLM_SERVER_DEV_MODE=1 VLLM_NO_USAGE_STATS=1 HF_HUB_OFFLINE=1 GLOO_SOCKET_IFNAME=lo
VLLM_CPU_OMP_THREADS_BIND=${VLLM_CPU_OMP_THREADS_BIND:-nobind}
export PYTHONPATH VLLM_SERVER_DEV_MODE VLLM_NO_USAGE_STATS HF_HUB_OFFLINE GLOO_SOCKET_IFNAME VLLM_CPU_OMP_THREADS_BIND
exec "${PYTHON:-$ROOT/.venv-vllm/bin/python}" -m vllm.entrypoints.openai.api_server --model "$MODEL" \
  --enable-scale-out --skip-tokenizer-init --generation-config vllm --logprobs-mode processed_logprobs \
  --worker-extension-cls turnwise_loader.Loader "$@"
