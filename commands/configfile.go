package commands

import "github.com/crishim/crishim/client"

// config is the config file's content, read once for a command line.
func (env *Env) config() (*client.Config, error) {
	if env.loaded != nil {
		return env.loaded, nil
	}
	config, err := client.LoadConfig(env.configSource())
	if err != nil {
		return nil, inputError{err}
	}
	env.loaded = config
	return config, nil
}

func (env *Env) configSource() client.ConfigSource {
	return client.ConfigSource{
		Path: env.global.config, LookupEnv: env.LookupEnv, Executable: env.Executable, Default: env.ConfigFile,
	}
}
