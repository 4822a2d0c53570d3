"""Knowledge bases. Every question names the user who asks, and is answered for bases of which the user is a member."""
