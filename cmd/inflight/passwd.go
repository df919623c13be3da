package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"inflight/broker/auth"
)

// newPasswdCommand edits a password file of the reference broker.
func newPasswdCommand() *cobra.Command {
	fromStdin, remove := false, false
	cmd := &cobra.Command{
		Use:   "passwd FILE USER",
		Short: "Add, change or delete a user of a password file",
		Long: `Passwd adds a user to a password file of the broker, or changes the password;
with --delete it removes the user. The password is asked for twice on the
terminal, or read from the first line of standard input with --stdin. The file
is made if it is not there, readable by its owner only, and replaced as a whole:
a broker never reads half of it. A running broker takes the change on SIGHUP.`,
		Example: `  inflight broker passwd users alice
  pwgen 20 1 | inflight broker passwd users sensor-7 --stdin
  inflight broker passwd users alice --delete`,
		Args: arguments(2, 2, "a FILE and a USER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, user := args[0], args[1]
			if err := auth.ValidUser(user); err != nil {
				return usage(err)
			}
			if remove && fromStdin {
				return usagef("--delete needs no password: leave --stdin out")
			}
			data, err := os.ReadFile(file)
			if err != nil && (remove || !errors.Is(err, fs.ErrNotExist)) {
				return fmt.Errorf("password file: %w", err)
			}
			// Before the password is asked for: a broken file, or one without the user to delete.
			edited, found, err := auth.RemoveUser(file, data, user)
			if err != nil {
				return err
			}
			done := "deleted"
			if remove && !found {
				return fmt.Errorf("%s: no user %q", file, user)
			}
			if !remove {
				ask := terminalPassword
				if fromStdin {
					ask = firstLine
				}
				password, err := ask(cmd.Context(), cmd.InOrStdin(), cmd.ErrOrStderr(), user)
				if err != nil {
					return err
				}
				hash, err := auth.HashPassword(password)
				if err != nil {
					return usage(err)
				}
				created := false
				if edited, created, err = auth.SetUser(file, data, user, hash); err != nil {
					return err
				}
				done = "changed"
				if created {
					done = "added"
				}
			}
			if err := replaceFile(file, edited); err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: user %q %s\n", file, user, done)
			return nil
		},
	}
	f := cmd.Flags()
	f.BoolVar(&fromStdin, "stdin", false, "read the password from the first line of standard input")
	f.BoolVar(&remove, "delete", false, "delete the user")
	return cmd
}

// firstLine reads a password from the first line, without its end.
func firstLine(_ context.Context, in io.Reader, _ io.Writer, _ string) ([]byte, error) {
	const most = 4096 // far above what bcrypt takes, which is checked later
	line, err := bufio.NewReader(io.LimitReader(in, most)).ReadBytes('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read the password: %w", err)
	}
	return bytes.TrimRight(line, "\r\n"), nil
}

// terminalPassword asks twice without echo. An interrupt ends it, with the echo on again.
func terminalPassword(ctx context.Context, in io.Reader, talk io.Writer, user string) ([]byte, error) {
	tty, ok := in.(*os.File)
	if !ok || !term.IsTerminal(int(tty.Fd())) {
		return nil, usagef("standard input is no terminal to ask for a password: give it with --stdin")
	}
	fd := int(tty.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return nil, fmt.Errorf("ask for the password: %w", err)
	}
	type answer struct {
		password []byte
		err      error
	}
	ask := func(prompt string) ([]byte, error) {
		fmt.Fprint(talk, prompt)
		defer fmt.Fprintln(talk)
		answers := make(chan answer, 1)
		go func() {
			password, err := term.ReadPassword(fd)
			answers <- answer{password, err}
		}()
		select {
		case a := <-answers:
			return a.password, a.err
		case <-ctx.Done():
			_ = term.Restore(fd, before)
			return nil, context.Cause(ctx)
		}
	}
	first, err := ask(fmt.Sprintf("Password of %s: ", user))
	if err != nil {
		return nil, fmt.Errorf("read the password: %w", err)
	}
	second, err := ask("Again: ")
	if err != nil {
		return nil, fmt.Errorf("read the password: %w", err)
	}
	if !bytes.Equal(first, second) {
		return nil, errors.New("the two passwords differ")
	}
	return first, nil
}

// replaceFile writes a file as a whole, readable by its owner only. A symbolic link stays one.
func replaceFile(path string, data []byte) (err error) {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".passwd-*") // mode 0600
	if err != nil {
		return fmt.Errorf("password file: %w", err)
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	if _, err := f.Write(data); err != nil {
		return fmt.Errorf("password file: %w", err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("password file: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("password file: %w", err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("password file: %w", err)
	}
	return nil
}
