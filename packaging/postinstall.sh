#!/bin/sh
# After an installation or an upgrade: crictl is crishim where there is no other, and units run the new program.
set -e
if command -v update-alternatives >/dev/null 2>&1; then
  # Where /usr/bin/crictl is a file it stays, with a warning.
  update-alternatives --install /usr/bin/crictl crictl /usr/bin/crishim 10 \
    --slave /usr/share/bash-completion/completions/crictl crictl-completion /usr/share/crishim/crictl.bash || true
fi
if [ -d "${DPKG_ROOT:-}/run/systemd/system" ]; then
  systemctl daemon-reload || true
  # The socket stays open meanwhile, so a kubelet only waits.
  systemctl try-restart crishim.service 'crishim-sync@*.service' || true
fi
