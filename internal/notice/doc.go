// Package notice tells a process in advance that its machine or the process itself is about to be
// terminated, so that it can hand over what others need. Begin reading at Watch.
//
// A notice is a SIGTERM, as Kubernetes, systemd and people send it, or comes from the metadata
// service of the cloud, which a machine has to poll:
//
//	aws    the spot instance action, with a session token (IMDSv2); asked every 5 s, two minutes before
//	gcp    the value "preempted", in one request that waits for it to change; 30 s before
//	azure  scheduled events that name this machine; asked every second, 30 s before or more
//
// A cloud is asked only if it is named, or if the machine's firmware says that the machine belongs
// to it.
package notice
