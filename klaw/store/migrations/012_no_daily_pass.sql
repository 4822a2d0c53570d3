-- Days are not drawn into facts any more; what was noted of them stays, so that no topic draws it again.
DROP INDEX messages_said;
DROP INDEX day_entries_by_user;
