"""Names that `files` hides, and names that it shows and does not change.

A pattern is a name, or with `/` the end of a path; `*` stands for any characters of a name, `?` for one. Patterns
match in any spelling, see `names`.
"""

from __future__ import annotations

SECRETS = (
    # Keys and certificates
    "*.pem", "*.key", "*.ppk", "*.p8", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.keytab", "*.kdb", "*.kdbx", "*.ovpn",
    "*.age", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", ".ssh", ".gnupg", "etc/ssh", "etc/wireguard",
    # Password stores and keyrings
    ".password-store", ".local/share/keyrings", ".local/share/kwalletd", ".config/op", ".config/Bitwarden*",
    ".1password", ".vault-token", ".authinfo*", ".netrc", "_netrc", ".config/sops", ".sops", "Library/Keychains",
    "etc/shadow*", "etc/gshadow*", "run/secrets", "proc/*/environ",
    # Settings of programs that hold passwords or tokens
    ".env*", "*.env", "secrets.y*ml", "secrets.json", "secrets.toml", "credentials.json", "*credentials.csv",
    "client_secret*.json", "service?account*.json", "*firebase-adminsdk*.json", "local.settings.json", "*.tfvars",
    "*.tfstate*", "kubeconfig", "rclone.conf", ".htpasswd", "htpasswd", ".mcp.json", ".cifs*", ".smbcredentials",
    ".fetchmailrc", ".msmtprc", ".muttrc", ".mutt",
    # Cloud services
    ".aws", ".azure", ".config/gcloud", ".kube", ".docker", ".config/containers", "containers/auth.json",
    ".terraform.d", ".terraformrc", ".s3cfg", ".boto", ".config/rclone", ".oci", ".bluemix", ".config/doctl", ".fly",
    ".config/heroku", ".config/netlify", ".vercel", ".pulumi", ".config/hcloud", ".config/linode-cli", ".wrangler",
    ".databrickscfg", ".snowsql", ".minikube",
    # Packages and hosts of code
    ".npmrc", ".yarnrc*", ".pypirc", ".gem/credentials", ".cargo/credentials*", ".m2", ".gradle/gradle.properties",
    ".composer/auth.json", ".config/composer/auth.json", ".nuget", ".config/NuGet", ".config/pypoetry/auth.toml",
    ".config/hub", ".config/gh", ".config/glab-cli", ".git-credentials", ".config/git/credentials", ".git",
    # Databases
    ".pgpass", "pgpass.conf", ".my.cnf", ".mylogin.cnf", ".cqlshrc", ".mongorc.js", ".mongoshrc.js", ".redisclirc",
    # Models and data
    ".huggingface", ".cache/huggingface/token", ".cache/huggingface/stored_tokens", ".config/openai", ".openai",
    ".anthropic", ".claude*", ".codex", ".gemini", ".kaggle", ".config/wandb", ".jupyter", ".local/share/jupyter",
    ".ipython/profile_*/security",
    # Browsers, mail and messages
    ".mozilla", ".config/google-chrome*", ".config/chromium", ".config/BraveSoftware", ".config/microsoft-edge*",
    ".config/vivaldi", ".config/opera", ".thunderbird", ".config/evolution", ".config/Slack", ".config/discord",
    ".config/Signal", "Library/Application Support", "Library/Cookies", "AppData", "logins.json", "Login Data",
    "cookies.sqlite", "key?.db",
    # Histories of shells, databases and editors
    ".*_history*", ".*-history", "*_history.txt", "fish_history", ".zhistory", ".histfile", ".lesshst", ".viminfo",
    ".dbshell",
    # The key of this library's seals, where it usually is
    ".local/state/orchestrator",
)  # fmt: skip
"""Places of keys, passwords and tokens. `.git` is one: its settings may hold passwords, and its hooks are run."""

HIDDEN = (*SECRETS, ".*")
"""Hidden by default: secrets, and everything else whose name begins with a dot."""

READ_ONLY = (
    # Shells and logins
    ".bash*", ".profile", ".zsh*", ".zlog*", ".zprofile", ".kshrc", ".cshrc", ".tcshrc", ".login", ".logout",
    ".config/fish", ".config/nushell", ".inputrc", "mise*.toml", ".mise*.toml", ".tool-versions", ".pam_environment",
    ".config/environment.d", "*profile.ps1",
    # Sessions, services and timers
    ".config/autostart", ".config/systemd", ".local/share/systemd", ".config/plasma-workspace", ".xinitrc",
    ".xsession*", ".xprofile", ".Xresources", ".Xdefaults", ".config/i3", ".config/sway", ".config/hypr", ".local/bin",
    ".local/share/applications", "*.desktop", "crontab", "crontab.*", "cron.d", "etc/cron*", "var/spool/cron",
    "etc/profile*", "etc/systemd", "etc/sudoers*", "etc/ld.so.*", "Library/LaunchAgents", "Library/LaunchDaemons",
    "autorun.inf",
    # Editors, terminals and debuggers
    ".vimrc", "_vimrc", ".gvimrc", "_gvimrc", ".exrc", ".vim", ".config/nvim", ".emacs*", ".config/emacs", ".spacemacs",
    ".dir-locals*.el", ".vscode*", "*.code-workspace", ".idea", ".zed", ".cursor", ".windsurf", ".devcontainer*",
    ".tmux*", ".config/tmux", ".screenrc", ".nanorc", ".config/kitty", ".wezterm.lua", ".gdbinit", ".lldbinit",
    # Version control, and checks that run with it
    ".gitconfig", ".config/git", ".gitmodules", ".gitattributes", ".hg", ".hgrc", ".svn", ".husky", ".githooks",
    ".pre-commit-*", "lefthook*.y*ml", ".lefthook*", ".lintstagedrc*", ".github", ".gitlab*", ".circleci",
    ".travis.yml", ".buildkite", ".woodpecker*", ".drone.yml", "Jenkinsfile", "azure-pipelines*.y*ml",
    "bitbucket-pipelines.yml", "cloudbuild*.y*ml", "buildspec*.y*ml",
    # Python, JavaScript and other languages
    "sitecustomize.py", "usercustomize.py", "*.pth", ".pythonrc*", ".pythonstartup*", ".pdbrc*", "pip.conf", "pip.ini",
    ".pip", ".config/pip", ".condarc", ".pydistutils.cfg", ".ipython", ".config/matplotlib", "node_modules/.bin",
    ".node_modules", "bunfig.toml", ".pnp.*", ".yarn", ".pnpmfile.cjs", ".cargo", ".rustup", ".gradle", ".mvn",
    ".Rprofile", ".Renviron", ".irbrc", ".pryrc", ".bundle", ".gemrc", ".ghci", ".perldb", ".sqliterc", ".psqlrc",
    ".octaverc", ".julia/config", ".npm", ".deno", ".bun", ".pyenv", ".rbenv", ".nvm", ".asdf", ".sdkman", ".oh-my-zsh",
    ".cache/pre-commit",
)  # fmt: skip
"""Files that other programs run unasked: when a shell, a session, an editor, an interpreter or a program of version
control starts, or a folder is opened. Files that run only when a person starts them, such as a Makefile, are not here.
"""
